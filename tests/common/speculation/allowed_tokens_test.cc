// SPDX-License-Identifier: Apache-2.0
// The mask of the tokens that may come next. If this test fails, proposers guess tokens in vain, or guess nothing.
#include "common/speculation/allowed_tokens.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace foretoken::speculation {
namespace {

constexpr size_t kMaxBytes = 16;

TEST(AllowedTokens, WithoutBytesAnyTokenMayCome) {
  EXPECT_TRUE(AllowedTokens().allow_any());
  EXPECT_TRUE(AllowedTokens("").Allows(0));
  EXPECT_TRUE(AllowedTokens().Allows(std::numeric_limits<int32_t>::max()));
}

TEST(AllowedTokens, ATokenMayComeIfItsBitIsSet) {
  const std::string bytes = {'\x01', '\x00', '\x80'};
  const AllowedTokens allowed(bytes);
  EXPECT_FALSE(allowed.allow_any());
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < 100; ++id) {
    if (allowed.Allows(id)) ids.push_back(id);
  }
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 23}));
  EXPECT_FALSE(allowed.Allows(std::numeric_limits<int32_t>::max()));
}

TEST(AllowedTokens, TheBytesOfWordsAllowTheSameTokens) {
  const std::vector<uint32_t> words = {1u << 31 | 1u << 8, 0, 1u << 3, 0};
  const std::string bytes = AllowedTokensBytes(words, kMaxBytes);
  EXPECT_EQ(bytes.size(), 9) << "zero bytes at the end are cut off";
  for (int32_t id = 0; id < 200; ++id) {
    const bool expected = id < 128 && (words[id / 32] >> id % 32 & 1) != 0;
    EXPECT_EQ(AllowedTokens(bytes).Allows(id), expected) << id;
  }
}

TEST(AllowedTokens, AMaskThatAllowsNothingIsNotTheMaskThatAllowsAnything) {
  EXPECT_EQ(AllowedTokensBytes({}, kMaxBytes), "");
  const std::string bytes = AllowedTokensBytes(std::vector<uint32_t>{0, 0}, kMaxBytes);
  EXPECT_EQ(bytes.size(), 1);
  EXPECT_FALSE(AllowedTokens(bytes).allow_any());
  EXPECT_FALSE(AllowedTokens(bytes).Allows(0));
}

TEST(AllowedTokens, AMaskThatIsTooLongAllowsAnything) {
  std::vector<uint32_t> words(kMaxBytes / 4, ~0u);
  EXPECT_EQ(AllowedTokensBytes(words, kMaxBytes).size(), kMaxBytes);
  words.push_back(0);
  EXPECT_EQ(AllowedTokensBytes(words, kMaxBytes).size(), kMaxBytes);
  words.back() = 1;
  EXPECT_EQ(AllowedTokensBytes(words, kMaxBytes), "");
}

}  // namespace
}  // namespace foretoken::speculation
