// SPDX-License-Identifier: Apache-2.0
// The only thread that writes a suffix memory. It learns finished outputs in the order of their arrival and writes
// snapshots. The queue of outputs is bounded: the learner drops an output that does not fit, so it cannot fall behind
// without limit. It learns the outputs of the snapshot file first, while the service serves.
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
  int64_t max_waiting_tokens = 1 << 22;  // bound of the queue; every output counts as 128 tokens more than it has
};

class SuffixLearner {
 public:
  // The memory and the metrics outlive the learner. Null metrics: no metrics. Null file: no snapshots.
  SuffixLearner(SuffixMemory& memory, const SuffixLearnerOptions& options, std::unique_ptr<SuffixSnapshotFile> file,
                SuffixMetrics* metrics);
  // Writes a last snapshot. It includes the outputs that still wait.
  ~SuffixLearner();

  void Learn(SuffixText output);
  // Returns when all outputs given to Learn, and all outputs of the file, are learned.
  void WaitUntilLearned();

 private:
  void Run();
  std::optional<SuffixText> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Save();

  SuffixMemory& memory_;
  const SuffixLearnerOptions options_;
  const std::unique_ptr<SuffixSnapshotFile> file_;  // null: no snapshots
  SuffixMetrics* const metrics_;
  absl::Mutex mutex_;
  std::deque<SuffixText> restoring_ ABSL_GUARDED_BY(mutex_);  // the file's outputs; they go first
  std::deque<SuffixText> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t num_waiting_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_learning_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_unsaved_ ABSL_GUARDED_BY(mutex_) = false;  // no snapshot has the latest outputs
  std::thread thread_;
};

}  // namespace foretoken::proposer
