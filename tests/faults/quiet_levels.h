// SPDX-License-Identifier: Apache-2.0
// What a verifier and its proposers hold, noted before a fault and compared after it.
//
//   ASSERT_TRUE(load.AcceptsMore());                   // caches and pools are warm
//   const QuietLevels levels({&verifier, &proposer});  // before the fault
//   ...                                                // the fault, and the end of the load
//   levels.ExpectBack();
//
// This finds a leak of 16 MiB. A test for smaller leaks repeats its fault many times and says how much memory all of
// its repetitions may cost.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/service_process.h"

namespace foretoken {

// Sanitizers keep freed memory for a while, and must be loaded before any other library.
constexpr bool kIsSanitized = !absl::string_view(FORETOKEN_SANITIZER).empty();

class QuietLevels {
 public:
  // More than what pools, arenas and thread stacks of a warm process vary by: 7 MiB in these tests.
  static constexpr int64_t kMaxGrowthBytes = int64_t{16} << 20;

  static constexpr absl::Duration kTimeToGiveBack = absl::Seconds(5);  // a service gives holes back every 2 s

  explicit QuietLevels(std::vector<testing::ServiceProcess*> services) : services_(std::move(services)) {
    for (testing::ServiceProcess* service : services_) memory_.push_back(service->process().MemoryBytes());
  }

  // After the load: no sequence, no call and no session is left, and the memory is what it was. A process that was
  // started anew meanwhile must not need more than the one before.
  void ExpectBack(int64_t max_growth_bytes = kMaxGrowthBytes) const {
    for (size_t i = 0; i < services_.size(); ++i) {
      const testing::ServiceProcess& service = *services_[i];
      for (const char* name : {"foretoken_samples_running", "foretoken_samples_queued", "foretoken_unread_calls",
                               "foretoken_proposer_sessions"}) {
        EXPECT_TRUE(WaitUntil([&] { return service.Metric(name) == 0; })) << service.address() << ": " << name;
      }
      const auto memory = [&] { return service.process().MemoryBytes(); };
      EXPECT_GT(memory(), 0) << service.address() << ": ended";
      if (kIsSanitized) continue;
      EXPECT_TRUE(WaitUntil([&] { return memory() - memory_[i] < max_growth_bytes; }, kTimeToGiveBack))
          << service.address() << ": grew from " << memory_[i] << " to " << memory();
    }
  }

 private:
  const std::vector<testing::ServiceProcess*> services_;
  std::vector<int64_t> memory_;
};

}  // namespace foretoken
