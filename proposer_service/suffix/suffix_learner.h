// SPDX-License-Identifier: Apache-2.0
// The only thread that writes a suffix memory. It learns finished outputs in the order of their arrival and writes
// snapshots. The queue of outputs is bounded: the learner drops an output that does not fit, so it cannot fall behind
// without limit. It learns the outputs of the snapshot file first, while the service serves. The interval of snapshots
// follows the steady clock.
//
// Threads: any.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

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
  std::optional<SuffixText> TakeNext();  // under the lock
  void Save();

  SuffixMemory& memory_;
  const SuffixLearnerOptions options_;
  const std::unique_ptr<SuffixSnapshotFile> file_;  // null: no snapshots
  SuffixMetrics* const metrics_;
  // A std::mutex, because the timed waits of absl::Mutex follow the system's clock. It guards what follows.
  std::mutex mutex_;
  std::condition_variable wake_;      // of Run
  std::condition_variable learned_;   // nothing is left to learn
  std::deque<SuffixText> restoring_;  // the file's outputs; they go first
  std::deque<SuffixText> waiting_;
  int64_t num_waiting_tokens_ = 0;
  bool is_learning_ = false;
  bool is_ending_ = false;
  bool has_unsaved_ = false;  // no snapshot has the latest outputs
  std::thread thread_;
};

}  // namespace foretoken::proposer
