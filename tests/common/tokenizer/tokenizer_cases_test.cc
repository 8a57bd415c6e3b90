// SPDX-License-Identifier: Apache-2.0
// Ids and decoded texts against PyPI's `tokenizers`; tests/cases/tokenizer/make_cases.py makes the data and describes
// its format. If this test fails, a model reads other tokens than it was trained with, or users get wrong text.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/base/mapped_file.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/unicode/utf8.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/common/tokenizer/tokenizer_file.h"
#include "tests/testing/paths.h"

namespace foretoken::tokenizer {
namespace {

using nlohmann::json;
using testing::SourcePath;

constexpr absl::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::vector<std::string> ReadLines(const std::string& path) {
  const absl::StatusOr<std::string> text = base::ReadFile(SourcePath(path));
  EXPECT_TRUE(text.ok()) << text.status();
  std::vector<std::string> lines = absl::StrSplit(text.value_or(""), '\n');
  lines.pop_back();
  return lines;
}

std::vector<int32_t> IdsOfLetters(absl::string_view letters) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i + 1 < letters.size(); i += 2) {
    ids.push_back(static_cast<int32_t>(kAlphabet.find(letters[i]) * 64 + kAlphabet.find(letters[i + 1])));
  }
  return ids;
}

struct Expected {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<int32_t> special_ids;
  std::string decoded;
};

// The incremental decoder returns whole characters, and together they are the text that Decode returns.
void ExpectIncrementalAgrees(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                             const DecodeOptions& options) {
  IncrementalDecoder decoder(tokenizer, options);
  std::string all;
  for (const int32_t id : ids) {
    const std::string delta = decoder.Append(id);
    ASSERT_EQ(FirstInvalidUtf8(delta), std::nullopt);
    all += delta;
  }
  all += decoder.Flush();
  EXPECT_EQ(all, tokenizer.Decode(ids, options).value());
}

void ExpectMatches(const Tokenizer& tokenizer, const Expected& expected) {
  SCOPED_TRACE(json(expected.text).dump(-1, ' ', true));
  EXPECT_EQ(tokenizer.Encode(expected.text).value(), expected.ids);
  EXPECT_EQ(tokenizer.Encode(expected.text, {.parse_special = true}).value(), expected.special_ids);
  EXPECT_EQ(tokenizer.Decode(expected.special_ids, {.skip_special = true}).value(), expected.decoded);
  ExpectIncrementalAgrees(tokenizer, expected.special_ids, {.skip_special = true});
  ExpectIncrementalAgrees(tokenizer, expected.special_ids, {.continues_text = true});
}

class TokenizerStyle : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerStyle, AgreesWithHuggingFaceOnHostileTexts) {
  const std::string directory = std::string("tests/cases/tokenizer/") + GetParam();
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(SourcePath(directory));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::vector<std::string> texts = ReadLines("tests/cases/tokenizer/texts.txt");
  const std::vector<std::string> lines = ReadLines(directory + "/expected.txt");
  ASSERT_EQ(texts.size(), 10000);
  ASSERT_TRUE(lines.size() == texts.size() || lines.size() == texts.size() / 10) << lines.size();
  const size_t stride = texts.size() / lines.size();
  for (size_t i = 0; i < lines.size() && !HasFailure(); ++i) {
    if (lines[i].empty()) continue;
    const std::vector<std::string> fields = absl::StrSplit(lines[i], '\t');
    ASSERT_EQ(fields.size(), 3);
    const std::string text = json::parse(texts[stride * i]);
    ExpectMatches(*tokenizer, {.text = text,
                               .ids = IdsOfLetters(fields[0]),
                               .special_ids = IdsOfLetters(fields[fields[1].empty() ? 0 : 1]),
                               .decoded = fields[2].empty() ? text : json::parse(fields[2]).get<std::string>()});
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, TokenizerStyle, ::testing::Values("llama3", "qwen2", "llama2", "mistral", "unigram"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenizerVariants, AgreeWithHuggingFace) {
  const std::string path = SourcePath("tests/cases/tokenizer/variants.json");
  const json variants = json::parse(base::ReadFile(path).value());
  ASSERT_GT(variants.size(), 40);
  for (const json& variant : variants) {
    SCOPED_TRACE(variant["style"].get<std::string>() + " " + variant["patch"].dump().substr(0, 200));
    const TokenizerFile file(variant["style"], variant["patch"]);
    const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(file.directory());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const json& expected : variant["cases"]) {
      ExpectMatches(*tokenizer, {expected[0], expected[1], expected[2], expected[3]});
    }
  }
}

TEST(DemoTokenizer, AgreesWithTheReference) {
  const json reference = json::parse(base::ReadFile(SourcePath("deploy/demo/reference.json")).value());
  ASSERT_GT(reference["tokenizer"].size(), 5);
  for (const char* model : {"deploy/demo/target", "deploy/demo/draft"}) {
    const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(SourcePath(model));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const json& entry : reference["tokenizer"]) {
      const std::string text = entry["text"];
      const std::vector<int32_t> ids = entry["token_ids"];
      EXPECT_EQ(tokenizer->Encode(text).value(), ids);
      EXPECT_EQ(tokenizer->Decode(ids).value(), text);
    }
  }
}

}  // namespace
}  // namespace foretoken::tokenizer
