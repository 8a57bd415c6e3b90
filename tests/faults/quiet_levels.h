// SPDX-License-Identifier: Apache-2.0
// What a verifier and its proposers hold, noted before a fault and compared after it.
//
//   ASSERT_TRUE(load.AcceptsMore());                   // caches and pools are warm
//   const QuietLevels levels({&verifier, &proposer});  // before the fault
//   ...                                                // the fault, and the end of the load
//   levels.ExpectBack();
//
// This finds a leak of tens of megabytes. A test for smaller leaks repeats its fault many times and says how much
// memory one repetition may cost.
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
  // More than what pools, arenas and thread stacks of a warm process vary by.
  static constexpr int64_t kMaxGrowthBytes = int64_t{32} << 20;
  // The demo's K/V cache in the verifier. It becomes resident as its blocks are first used.
  static constexpr int64_t kKvCacheBytes = int64_t{32} << 20;

  explicit QuietLevels(std::vector<testing::ServiceProcess*> services) : services_(std::move(services)) {
    for (testing::ServiceProcess* service : services_) memory_.push_back(service->process().MemoryBytes());
  }

  // After the load: no sequence, no call and no session is left, and the memory is what it was. A process that was
  // started anew meanwhile must not need more than the one before.
  void ExpectBack() const {
    ExpectNothingLeft();
    for (size_t i = 0; i < services_.size(); ++i) {
      const bool has_kv_cache = services_[i]->binary() == "foretoken_verifier";
      ExpectGrowthBelow(kMaxGrowthBytes + (has_kv_cache ? kKvCacheBytes : 0), i);
    }
  }
  // The same after a fault that was repeated, in processes whose caches were full before.
  void ExpectBackAfter(int num_faults, int64_t max_bytes_each) const {
    ExpectNothingLeft();
    for (size_t i = 0; i < services_.size(); ++i) ExpectGrowthBelow(num_faults * max_bytes_each, i);
  }

 private:
  void ExpectNothingLeft() const {
    for (const testing::ServiceProcess* service : services_) {
      for (const char* name : {"foretoken_samples_running", "foretoken_samples_queued", "foretoken_unread_calls",
                               "foretoken_proposer_sessions"}) {
        EXPECT_TRUE(WaitUntil([&] { return service->Metric(name) == 0; })) << service->address() << ": " << name;
      }
    }
  }
  void ExpectGrowthBelow(int64_t max_growth_bytes, size_t service_idx) const {
    const testing::ServiceProcess& service = *services_[service_idx];
    const int64_t memory = service.process().MemoryBytes();
    EXPECT_GT(memory, 0) << service.address() << ": ended";
    if (kIsSanitized) return;
    EXPECT_LT(memory - memory_[service_idx], max_growth_bytes)
        << service.binary() << " grew from " << memory_[service_idx];
  }

  const std::vector<testing::ServiceProcess*> services_;
  std::vector<int64_t> memory_;  // [services]
};

}  // namespace foretoken
