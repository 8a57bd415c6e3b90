// SPDX-License-Identifier: Apache-2.0
// How growth is told from memory that only varies. If this test fails, the soak may pass with a leak.
#include "tests/testing/memory_watch.h"

#include <gtest/gtest.h>

namespace foretoken::testing {
namespace {

TEST(GrowthOf, LeavesOutTheFirstThirdAndSingleSamples) {
  std::vector<int64_t> samples(90, 100);
  for (int i = 0; i < 30; ++i) samples[i] = i;  // warms up
  samples[31] = samples[88] = 100'000;          // a moment's need
  const MemoryGrowth growth = GrowthOf("steady", samples);
  EXPECT_EQ(growth.begin_bytes, 100);
  EXPECT_EQ(growth.num_bytes(), 0);
}

TEST(GrowthOf, FindsALeak) {
  std::vector<int64_t> samples;
  for (int i = 0; i < 90; ++i) samples.push_back(1000 + 10 * i);
  EXPECT_GT(GrowthOf("leaks", samples).num_bytes(), 500);
}

}  // namespace
}  // namespace foretoken::testing
