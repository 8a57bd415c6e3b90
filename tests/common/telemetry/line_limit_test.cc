// SPDX-License-Identifier: Apache-2.0
// The bound on log lines. If this test fails, a peer can fill the disk with log lines, or operators do not see how many
// lines were left out.
#include "common/telemetry/line_limit.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::telemetry {
namespace {

using ::testing::Optional;

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(LineLimit, PassesAFewLinesAtOnceAndThenOnePerPeriod) {
  LineLimit limit;
  int num_passed = 0;
  for (int i = 0; i < 3000; ++i) num_passed += limit.Pass("line", kStart).has_value() ? 1 : 0;
  EXPECT_EQ(num_passed, LineLimit::kBurst);
  EXPECT_EQ(limit.Pass("line", kStart + LineLimit::kPeriod - absl::Nanoseconds(1)), std::nullopt);
  EXPECT_THAT(limit.Pass("line", kStart + LineLimit::kPeriod),
              Optional(std::string("line (2996 lines were left out)")));
  EXPECT_EQ(limit.Pass("line", kStart + LineLimit::kPeriod), std::nullopt);
  num_passed = 0;
  for (int second = 0; second < 1000; ++second) {
    num_passed += limit.Pass("line", kStart + LineLimit::kPeriod + absl::Seconds(second)).has_value() ? 1 : 0;
  }
  EXPECT_EQ(num_passed, absl::Seconds(999) / LineLimit::kPeriod);
}

TEST(LineLimit, SavesNoMoreThanABurst) {
  LineLimit limit;
  for (const absl::Time now : {kStart, kStart + absl::Hours(1), kStart + absl::Hours(1000)}) {
    int num_passed = 0;
    for (int i = 0; i < 100; ++i) num_passed += limit.Pass("line", now).has_value() ? 1 : 0;
    EXPECT_EQ(num_passed, LineLimit::kBurst);
  }
}

TEST(LineLimit, GivesTheNumberOfLinesLeftOut) {
  LineLimit limit;
  EXPECT_THAT(limit.Pass("first", kStart), Optional(std::string("first")));
  limit.LeaveOut();
  limit.LeaveOut();
  EXPECT_THAT(limit.Pass("second", kStart), Optional(std::string("second (2 lines were left out)")));
  EXPECT_THAT(limit.Pass("third", kStart), Optional(std::string("third")));
}

TEST(LineLimits, ManyLinesOfOneCauseLeaveTheLinesOfAnother) {
  LineLimits limits;
  for (int i = 0; i < 100; ++i) limits.Pass("stalled", "line", kStart);
  EXPECT_EQ(limits.Pass("stalled", "line", kStart), std::nullopt);
  EXPECT_THAT(limits.Pass("broken", "line", kStart), Optional(std::string("line")));
}

}  // namespace
}  // namespace foretoken::telemetry
