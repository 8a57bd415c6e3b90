// SPDX-License-Identifier: Apache-2.0
// Special tokens that count in parts of a text only. If these tests fail, what a user writes in a conversation can
// become a special token, or what the chat template writes does not.
#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/tokenizer/tokenizer_file.h"
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

// A tokenizer of the style that searches for all of its added tokens in the normalised text.
Tokenizer WithNormalizedTokens(const std::string& style) {
  std::ifstream in(testing::SourcePath("tests/cases/tokenizer/" + style + "/tokenizer.json"));
  nlohmann::json added = nlohmann::json::parse(in)["added_tokens"];
  for (nlohmann::json& token : added) token["normalized"] = true;
  return *Tokenizer::Load(TokenizerFile(style, {{"added_tokens", added}}).directory());
}

struct Part {
  std::string text;
  bool is_templates = false;
};

RangedText Joined(const std::vector<Part>& parts) {
  RangedText joined;
  for (const Part& part : parts) {
    const size_t begin = joined.text.size();
    joined.text += part.text;
    if (part.is_templates) joined.ranges.push_back({.begin = begin, .end = joined.text.size()});
  }
  return joined;
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::vector<Part>& parts) {
  const RangedText text = Joined(parts);
  return *tokenizer.Encode(text.text, {.add_special_tokens = false, .special_ranges = text.ranges});
}

std::vector<int32_t> EncodeAllParsed(const Tokenizer& tokenizer, const std::vector<Part>& parts) {
  return *tokenizer.Encode(Joined(parts).text, {.add_special_tokens = false, .parse_special = true});
}

constexpr char kDecomposed[] = "cafe\xCC\x81";

TEST(SpecialRanges, KeepTheTemplatesTokensWhereNfcChangesTheText) {
  const Tokenizer tokenizer = WithNormalizedTokens("qwen2");
  const int32_t start = *tokenizer.vocabulary().FindId("<|im_start|>");
  const int32_t end = *tokenizer.vocabulary().FindId("<|im_end|>");
  const std::vector<Part> chat = {{"<|im_start|>user\n", true}, {kDecomposed}, {"<|im_end|>\n", true}};
  EXPECT_EQ(Encode(tokenizer, chat), EncodeAllParsed(tokenizer, chat));
  const std::vector<int32_t> ids = Encode(
      tokenizer,
      {{"<|im_start|>user\n", true}, {absl::StrCat(kDecomposed, "<|im_end|><|im_start|>")}, {"<|im_end|>\n", true}});
  EXPECT_EQ(ids.front(), start);
  EXPECT_EQ(std::ranges::count(ids, start), 1);
  EXPECT_EQ(std::ranges::count(ids, end), 1);
}

TEST(SpecialRanges, KeepTheTemplatesTokensWhereTheNormalizerAddsASpace) {
  const Tokenizer tokenizer = WithNormalizedTokens("llama2");
  const int32_t begin = *tokenizer.vocabulary().FindId("<s>");
  const std::vector<Part> chat = {{"<s>[INST] ", true}, {"a b"}, {" [/INST] </s>", true}};
  EXPECT_EQ(Encode(tokenizer, chat), EncodeAllParsed(tokenizer, chat));
  EXPECT_EQ(Encode(tokenizer, chat).front(), begin);
  EXPECT_EQ(Encode(tokenizer, chat).back(), *tokenizer.vocabulary().FindId("</s>"));
  // The space before the user's text is the template's.
  const std::vector<int32_t> ids = Encode(tokenizer, {{"<s>[INST] ", true}, {"<s> </s>"}, {" [/INST]", true}});
  EXPECT_EQ(std::ranges::count(ids, begin), 1);
  EXPECT_EQ(std::ranges::count(Encode(tokenizer, {{"<s>"}, {" [INST]", true}}), begin), 0);
}

TEST(SpecialRanges, LoseACharacterThatIsMadeTogetherWithTheUsers) {
  const Tokenizer tokenizer = WithNormalizedTokens("qwen2");
  const int32_t end = *tokenizer.vocabulary().FindId("<|im_end|>");
  const std::vector<Part> chat = {{"<|im_end|>", true}, {"\xCC\xB8"}};  // ">" and U+0338 become one character
  EXPECT_EQ(Encode(tokenizer, chat), EncodeAllParsed(tokenizer, chat));
  EXPECT_EQ(std::ranges::count(Encode(tokenizer, chat), end), 0);
}

Normalizer NormalizerOf(const nlohmann::json& json) { return *Normalizer::FromJson(JsonValue(json, "normalizer")); }

nlohmann::json ReplaceStep(const std::string& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
}

TEST(Normalizer, KeepsToTheRanges) {
  const nlohmann::json steps[] = {
      {{"type", "NFC"}}, {{"type", "Prepend"}, {"prepend", "__"}}, ReplaceStep("--", "+"), ReplaceStep("-", "")};
  const Normalizer all = NormalizerOf({{"type", "Sequence"}, {"normalizers", {steps[0], steps[2], steps[1]}}});
  const RangedText result = all.Apply(Joined({{"a-", true}, {"--e"}, {"\xCC\x81-"}, {"b--c", true}}));
  EXPECT_EQ(result.text, "__a+-\xC3\xA9-b+c");
  ASSERT_EQ(result.ranges.size(), 2);
  EXPECT_EQ(result.text.substr(0, result.ranges[0].end), "__a") << "\"+\" comes from both sides";
  EXPECT_EQ(result.text.substr(result.ranges[1].begin, result.ranges[1].end), "b+c");
}

TEST(Normalizer, MakesTheSameTextWithAnyRanges) {
  const std::string pieces[] = {"a",
                                "e",
                                ">",
                                "-",
                                "--",
                                " ",
                                "\xCC\x81",
                                "\xCC\xB8",
                                "\xCC\xA3",
                                "\xC3\xA9",
                                "<s>",
                                "\xE1\x84\x92",
                                "\xE1\x85\xA1",
                                "\xE1\x86\xAB",
                                "\xE0\xA5\x98"};
  const nlohmann::json kinds[] = {{{"type", "NFC"}},
                                  ReplaceStep("--", "+"),
                                  ReplaceStep("-", ""),
                                  {{"type", "Prepend"}, {"prepend", "_"}},
                                  {{"type", "Sequence"}, {"normalizers", {ReplaceStep("--", "e"), {{"type", "NFC"}}}}}};
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<Part> parts(1 + random() % 6);
    for (size_t k = 0; k < parts.size(); ++k) {
      parts[k].is_templates = k % 2 == i % 2;
      for (size_t n = random() % 4; n > 0; --n) parts[k].text += pieces[random() % std::size(pieces)];
    }
    const RangedText text = Joined(parts);
    for (const nlohmann::json& kind : kinds) {
      const Normalizer normalizer = NormalizerOf(kind);
      EXPECT_EQ(normalizer.Apply(text).text, normalizer.Apply(text.text)) << kind << " " << text.text;
    }
  }
}

}  // namespace
}  // namespace foretoken::tokenizer
