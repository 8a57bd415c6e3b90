// SPDX-License-Identifier: Apache-2.0
// Bounds of benchmarks. If this test fails, a bench that is slower than it may be passes at night, or noise fails it.
#include "tests/bench/findings.h"

#include "gtest/gtest.h"

namespace foretoken::bench {
namespace {

int NumMissed(const Finding& finding) {
  Findings findings;
  findings.Add(finding);
  return findings.num_missed();
}

TEST(Findings, ABoundIsMissedIfNoValueOfTheIntervalMeetsIt) {
  EXPECT_EQ(NumMissed({.value = 1}), 0);
  EXPECT_EQ(NumMissed({.value = 1, .at_least = 1}), 0);
  EXPECT_EQ(NumMissed({.value = 0.9, .at_least = 1}), 1);
  EXPECT_EQ(NumMissed({.value = 1.1, .at_most = 1}), 1);
  EXPECT_EQ(NumMissed({.value = 0.9, .at_least = 1, .interval = Interval{.low = 0.8, .high = 1.01}}), 0);
  EXPECT_EQ(NumMissed({.value = 0.9, .at_least = 1, .interval = Interval{.low = 0.8, .high = 0.99}}), 1);
  EXPECT_EQ(NumMissed({.value = 1.1, .at_most = 1, .interval = Interval{.low = 0.99, .high = 1.2}}), 0);
  EXPECT_EQ(NumMissed({.value = 1.1, .at_most = 1, .interval = Interval{.low = 1.01, .high = 1.2}}), 1);
}

TEST(Findings, ANoisyValueNeitherMeetsABoundNorMissesIt) {
  Findings findings;
  findings.Add({.value = 0.4, .at_most = 0.5, .interval = Interval{.low = -1, .high = 2}});
  findings.Add({.value = 0.4, .at_most = 0.5, .interval = Interval{.low = 0.3, .high = 0.5}});
  findings.Add({.value = 0.4, .interval = Interval{.low = -1, .high = 2}});
  EXPECT_EQ(findings.num_open(), 1);
  EXPECT_EQ(findings.num_missed(), 0);
}

TEST(Findings, PrintedOnesCount) {
  Findings findings;
  findings.PrintAsFound();
  findings.Add({.what = "slow", .value = 2, .unit = "ms", .at_most = 1});
  findings.Add({.what = "fast", .value = 0.5, .unit = "ms", .at_most = 1});
  EXPECT_EQ(findings.num_missed(), 1);
}

}  // namespace
}  // namespace foretoken::bench
