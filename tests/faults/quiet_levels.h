// SPDX-License-Identifier: Apache-2.0
// What a verifier and its proposers hold, noted before a fault and compared after it.
//
//   const QuietLevels levels({&verifier, &proposer});  // under load, when caches and pools are warm
//   ...                                                // the fault, and the end of the load
//   levels.ExpectBack();
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/service_process.h"

namespace foretoken {

// Sanitizers keep freed memory for a while, and must be loaded before any other library.
constexpr bool kIsSanitized = !absl::string_view(FORETOKEN_SANITIZER).empty();

class QuietLevels {
 public:
  // The demo's K/V cache, which becomes resident as its blocks are first used, and more than what pools, arenas and
  // thread stacks of a warm process vary by. It is less than what one leaked context, output or connection per step or
  // request would add up to.
  static constexpr int64_t kKvCacheBytes = int64_t{32} << 20, kMaxGrowthBytes = kKvCacheBytes + (int64_t{32} << 20);

  explicit QuietLevels(std::vector<testing::ServiceProcess*> services) : services_(std::move(services)) {
    for (testing::ServiceProcess* service : services_) memory_.push_back(service->process().MemoryBytes());
  }

  // After the load: no sequence, no call and no session is left, and the memory is what it was. A process that was
  // started anew meanwhile must not need more than the one before.
  void ExpectBack() const {
    for (size_t i = 0; i < services_.size(); ++i) {
      testing::ServiceProcess& service = *services_[i];
      for (const char* name : {"foretoken_samples_running", "foretoken_samples_queued", "foretoken_unread_calls",
                               "foretoken_proposer_sessions"}) {
        EXPECT_TRUE(WaitUntil([&] { return service.Metric(name) == 0; })) << service.address() << ": " << name;
      }
      const int64_t growth = service.process().MemoryBytes() - memory_[i];
      EXPECT_GT(service.process().MemoryBytes(), 0) << service.address() << ": ended";
      if (kIsSanitized) continue;
      EXPECT_LT(growth, kMaxGrowthBytes) << service.address() << ": grew from " << memory_[i];
    }
  }

 private:
  const std::vector<testing::ServiceProcess*> services_;
  std::vector<int64_t> memory_;
};

}  // namespace foretoken
