// SPDX-License-Identifier: Apache-2.0
// Random ids and seeds. If this test fails, outsiders can predict them.
#include "common/base/system_random.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

namespace foretoken::base {
namespace {

TEST(SystemRandomBits, AreAllDifferentAndHalfOfThemSet) {
  std::set<uint64_t> values;
  int num_set = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bits = SystemRandomBits();
    values.insert(bits);
    num_set += std::popcount(bits);
  }
  EXPECT_EQ(values.size(), 1000);
  EXPECT_NEAR(num_set, 32000, 1300);  // ten standard deviations
}

}  // namespace
}  // namespace foretoken::base
