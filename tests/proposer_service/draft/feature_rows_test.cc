// SPDX-License-Identifier: Apache-2.0
// The features of one context. If this test fails, rows get the features of other tokens, or a session keeps the memory
// of its prompt's features as long as it lives.
#include "proposer_service/draft/feature_rows.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace foretoken::proposer {
namespace {

constexpr int32_t kWidth = 8;

std::vector<uint16_t> FeaturesOf(int32_t first_row, int32_t num_rows) {
  std::vector<uint16_t> values;
  for (int32_t i = 0; i < num_rows * kWidth; ++i) values.push_back(static_cast<uint16_t>(first_row + i / kWidth));
  return values;
}

TEST(FeatureRows, ALongPromptsFeaturesLeaveNoMemoryBehind) {
  constexpr int32_t kRows = 2000;
  constexpr size_t kRowBytes = kWidth * sizeof(uint16_t);
  FeatureRows features(kWidth);
  features.Append(FeaturesOf(0, kRows));
  for (int32_t row = 0; row < kRows; row += 100) EXPECT_EQ(features.Take(row, 100), FeaturesOf(row, 100));
  EXPECT_EQ(features.num_unused(), 0);
  EXPECT_LE(features.num_bytes(), 8 * kRowBytes);
  // Rows that come one by one.
  for (int32_t row = kRows; row < kRows + 100; ++row) {
    features.Append(FeaturesOf(row, 1));
    EXPECT_EQ(features.Take(row, 1), FeaturesOf(row, 1));
    EXPECT_LE(features.num_bytes(), 8 * kRowBytes);
  }
}

}  // namespace
}  // namespace foretoken::proposer
