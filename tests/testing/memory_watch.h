// SPDX-License-Identifier: Apache-2.0
// Looks at the resident memory of processes while a test runs, and tells which of them grow without end.
//
//   MemoryWatch watch({{"verifier", &verifier.process()}});
//   ...                                                        // a long load
//   for (const MemoryGrowth& growth : watch.Finish()) EXPECT_LT(growth.num_bytes(), kMaxGrowth) << growth.name;
//
// A process fills its caches and pools at first, so the growth counts from the end of the first third of the watch.
// Both ends are medians over a tenth of the watch, so a moment's need does not count.
//
// Threads: the watch runs its own thread. The processes must run until Finish.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/testing/child_process.h"

namespace foretoken::testing {

struct MemoryGrowth {
  std::string name;
  int64_t begin_bytes = 0;  // after the first third of a watch
  int64_t end_bytes = 0;

  int64_t num_bytes() const { return end_bytes - begin_bytes; }
};

// From samples at equal distances, at least ten.
MemoryGrowth GrowthOf(const std::string& name, const std::vector<int64_t>& samples);

class MemoryWatch {
 public:
  using Watched = std::pair<std::string, const ChildProcess*>;

  explicit MemoryWatch(std::vector<Watched> processes);
  ~MemoryWatch() { End(); }

  // Ends the watch. It must have lasted for two seconds.
  std::vector<MemoryGrowth> Finish();

 private:
  void Watch();
  void End();

  const std::vector<Watched> processes_;
  std::vector<std::vector<int64_t>> samples_;  // [processes], then in time
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace foretoken::testing
