// SPDX-License-Identifier: Apache-2.0
// Random ids and seeds. If this test fails, outsiders can predict them.
#include "common/base/system_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <span>
#include <thread>
#include <vector>

namespace foretoken::base {
namespace {

TEST(SystemRandomBits, AreAllDifferentAndHalfOfThemSet) {
  std::vector<uint64_t> drawn(2000);
  std::thread other([&] { std::ranges::generate(std::span(drawn).first(1000), SystemRandomBits); });
  std::ranges::generate(std::span(drawn).last(1000), SystemRandomBits);
  other.join();
  EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), drawn.size());
  int num_set = 0;
  for (const uint64_t bits : drawn) num_set += std::popcount(bits);
  EXPECT_NEAR(num_set, 64'000, 1800);  // ten standard deviations
}

}  // namespace
}  // namespace foretoken::base
