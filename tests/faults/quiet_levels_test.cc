// SPDX-License-Identifier: Apache-2.0
// A process that leaks, as a control. If this test fails, the tests of faults pass although a fault leaves memory
// behind.
#include "tests/faults/quiet_levels.h"

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "tests/faults/preload/leak.h"
#include "tests/integration/connect.h"

namespace foretoken {
namespace {

constexpr int64_t kBytesPerMiB = int64_t{1} << 20;

// Returns when the process has leaked this much.
void AwaitGrowth(const ServiceProcess& service, int64_t num_bytes) {
  ASSERT_TRUE(WaitUntil(
      [&, end = service.process().MemoryBytes() + num_bytes] { return service.process().MemoryBytes() >= end; }));
}

class QuietLevelsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "a sanitizer must be loaded before any other library";
  }
};

TEST_P(QuietLevelsTest, FindAProcessThatLeaks) {
  ServiceProcess service(GetParam(), {}, LeakEnvironment(16 * kBytesPerMiB));
  const QuietLevels levels({&service});
  levels.ExpectBack();
  AwaitGrowth(service, 2 * QuietLevels::kMaxGrowthBytes);
  EXPECT_NONFATAL_FAILURE(levels.ExpectBack(), "grew from");
}

INSTANTIATE_TEST_SUITE_P(Services, QuietLevelsTest, ::testing::Values("foretoken_proposer", "foretoken_verifier"),
                         [](const auto& info) {
                           return std::string(info.param).substr(std::string("foretoken_").size());
                         });

}  // namespace
}  // namespace foretoken
