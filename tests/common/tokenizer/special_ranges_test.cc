// SPDX-License-Identifier: Apache-2.0
// Special tokens that count in parts of a text only. If these tests fail, what a user writes in a conversation can
// become a special token, or what the chat template writes does not.
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"

namespace foretoken::tokenizer {
namespace {

constexpr int32_t kStart = 4093;  // <|im_start|>
constexpr int32_t kEnd = 4094;    // <|im_end|>

const Tokenizer& Demo() {
  static const auto* const tokenizer = new Tokenizer(*Tokenizer::Load(testing::SourcePath("deploy/demo/target")));
  return *tokenizer;
}

std::vector<int32_t> Encode(const std::string& text, const std::vector<TextRange>& ranges) {
  return *Demo().Encode(text, {.add_special_tokens = false, .special_ranges = ranges});
}

int64_t CountSpecial(const std::vector<int32_t>& ids) {
  return std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id >= 4092; });
}

TEST(SpecialRanges, MakeTokensOfWhatLiesWhollyInOne) {
  const std::string text = "<|im_start|>a<|im_end|>b<|im_end|>";  // 12, 1, 10, 1, 10 bytes
  const std::vector<int32_t> ids = Encode(text, {{0, 12}, {24, 34}});
  EXPECT_EQ(ids.front(), kStart);
  EXPECT_EQ(ids.back(), kEnd);
  EXPECT_EQ(CountSpecial(ids), 2);
  EXPECT_EQ(*Demo().Decode(ids), text);
}

TEST(SpecialRanges, CoveringAllGiveTheSameTokensAsParsing) {
  const std::string text = "x<|im_start|>user\nhi<|im_end|>\n";
  EXPECT_EQ(Encode(text, {{0, text.size()}}),
            *Demo().Encode(text, {.add_special_tokens = false, .parse_special = true}));
}

TEST(SpecialRanges, DoNotJoin) {
  EXPECT_EQ(CountSpecial(Encode("<|im_end|>", {{0, 5}, {5, 10}})), 0);
  EXPECT_EQ(CountSpecial(Encode("<|im_end|>", {{0, 9}})), 0);
  EXPECT_EQ(CountSpecial(Encode("<|im_end|>", {{1, 10}})), 0);
}

TEST(SpecialRanges, AreNotHiddenByTheUsersSpelling) {
  // The user's text ends in the middle of a spelling that goes on in the template's.
  const std::string text = "<|im_start|<|im_end|>";
  EXPECT_EQ(Encode(text, {{11, 21}}).back(), kEnd);
}

}  // namespace
}  // namespace foretoken::tokenizer
