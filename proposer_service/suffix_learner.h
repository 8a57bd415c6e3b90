// SPDX-License-Identifier: Apache-2.0
// The one thread that writes a suffix memory: it learns finished outputs in the order in which they come, and writes
// snapshots. Outputs beyond what may wait are not learned, so that it cannot fall behind without end. A snapshot is
// learned before all of them, while the service serves.
//
// The vocabulary. Nothing is learned from a snapshot, and none is written over it, until AcceptVocabulary is called:
// the snapshot may be of another vocabulary than the verifiers'. That is before anything else is learned.
//
// Threads: any.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proposer_service/suffix_memory.h"
#include "proposer_service/suffix_metrics.h"
#include "proposer_service/suffix_snapshot.h"

namespace foretoken::proposer {

struct SuffixLearnerOptions {
  std::string snapshot_path = {};  // empty: none is read or written
  absl::Duration snapshot_interval = absl::Minutes(5);
  int64_t max_waiting_tokens = 1 << 22;  // outputs beyond them are not learned
};

class SuffixLearner {
 public:
  // The memory outlives the learner, and so do the metrics; null: nobody reads any. A snapshot that cannot be used is
  // named in the log.
  SuffixLearner(SuffixMemory& memory, const SuffixLearnerOptions& options, SuffixMetrics* metrics);
  // Writes a snapshot, which includes what waits to be learned.
  ~SuffixLearner();

  // FAILED_PRECONDITION: what is learned is of another vocabulary. As Proposer::AcceptVocabulary.
  absl::Status AcceptVocabulary(absl::string_view fingerprint);
  void Learn(SuffixText output);
  // Everything that was given to Learn, and the snapshot once it is adopted.
  void WaitUntilLearned();

 private:
  void Run();
  std::optional<SuffixText> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AdoptSnapshot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Save();

  SuffixMemory& memory_;
  const SuffixLearnerOptions options_;
  SuffixMetrics* const metrics_;
  absl::Mutex mutex_;
  std::optional<SuffixSnapshot> unadopted_ ABSL_GUARDED_BY(mutex_);
  std::string vocabulary_ ABSL_GUARDED_BY(mutex_);
  std::deque<SuffixText> restoring_ ABSL_GUARDED_BY(mutex_);  // of the snapshot; goes first
  std::deque<SuffixText> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t num_waiting_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_learning_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_unsaved_ = false;  // the thread's own
  std::thread thread_;
};

}  // namespace foretoken::proposer
