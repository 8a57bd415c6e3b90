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

TEST(AllowedTokens, WordsHaveTheBitsOfTheVocabularyOnly) {
  const AllowedTokens allowed(std::string{'\x01', '\x00', '\x80', '\x00', '\x02'});
  EXPECT_EQ(allowed.Words(33), (std::vector<uint32_t>{1u << 23 | 1, 2}));
  EXPECT_EQ(allowed.Words(32), (std::vector<uint32_t>{1u << 23 | 1}));
  EXPECT_EQ(allowed.Words(100), (std::vector<uint32_t>{1u << 23 | 1, 2, 0, 0}));
}

TEST(AllowedTokens, MasksWithTheSameBytesAreEqual) {
  EXPECT_EQ(AllowedTokens("ab"), AllowedTokens("ab"));
  EXPECT_EQ(AllowedTokens(), AllowedTokens(""));
  EXPECT_FALSE(AllowedTokens("ab") == AllowedTokens("ac"));
  EXPECT_FALSE(AllowedTokens("ab") == AllowedTokens());
}

TEST(AllowedTokens, ATreeKeepsTheNodesBelowAllowedChildrenOfItsRoot) {
  const TokenTree tree = {.position = 9,
                          .nodes = {{.token_id = 1, .parent = -1, .chance = .5f},
                                    {.token_id = 2, .parent = -1, .chance = .3f},
                                    {.token_id = 7, .parent = 1, .chance = .2f},
                                    {.token_id = 2, .parent = 0, .chance = .1f}}};
  const TokenTree kept = KeepAllowed(tree, AllowedTokens(std::string{'\x04'}));
  EXPECT_EQ(kept.position, 9);
  EXPECT_EQ(kept.nodes, (std::vector<TreeNode>{{.token_id = 2, .parent = -1, .chance = .3f},
                                               {.token_id = 7, .parent = 0, .chance = .2f}}));
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
