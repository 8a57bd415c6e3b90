// SPDX-License-Identifier: Apache-2.0
// The one thread that writes a suffix memory: it learns finished outputs in the order in which they come, and writes
// snapshots. Outputs beyond what may wait are not learned, so that it cannot fall behind without end. What the snapshot
// file held is learned before all of them, while the service serves.
//
// Threads: any.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proposer_service/suffix/suffix_memory.h"
#include "proposer_service/suffix/suffix_metrics.h"
#include "proposer_service/suffix/suffix_snapshot.h"

namespace foretoken::proposer {

struct SuffixLearnerOptions {
  absl::Duration snapshot_interval = absl::Minutes(5);
  int64_t max_waiting_tokens = 1 << 22;  // outputs beyond them are not learned; every output counts for 128 more
};

class SuffixLearner {
 public:
  // The memory outlives the learner, and so do the metrics; null: nobody reads any. Without a file nothing is written.
  SuffixLearner(SuffixMemory& memory, const SuffixLearnerOptions& options, std::unique_ptr<SuffixSnapshotFile> file,
                SuffixMetrics* metrics);
  // Writes a snapshot, which includes what waits to be learned.
  ~SuffixLearner();

  void Learn(SuffixText output);
  // Everything that was given to Learn, and what the file held.
  void WaitUntilLearned();

 private:
  void Run();
  std::optional<SuffixText> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Save();

  SuffixMemory& memory_;
  const SuffixLearnerOptions options_;
  const std::unique_ptr<SuffixSnapshotFile> file_;  // null: nothing survives
  SuffixMetrics* const metrics_;
  absl::Mutex mutex_;
  std::deque<SuffixText> restoring_ ABSL_GUARDED_BY(mutex_);  // of the file; goes first
  std::deque<SuffixText> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t num_waiting_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_learning_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_unsaved_ ABSL_GUARDED_BY(mutex_) = false;  // something came that no snapshot has
  std::thread thread_;
};

}  // namespace foretoken::proposer
