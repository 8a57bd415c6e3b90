// SPDX-License-Identifier: Apache-2.0
// Every assigned code point, cut and normalised as in Hugging Face's `tokenizers`, for any Unicode version of the
// system. tests/cases/tokenizer/make_cases.py makes the data and describes its format. If this test fails, texts in
// some languages get other tokens than the model was trained with.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/mapped_file.h"
#include "common/base/sha256.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/unicode/nfc.h"
#include "common/tokenizer/unicode/utf8.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/common/tokenizer/tokenizer_file.h"
#include "tests/testing/paths.h"

namespace foretoken::tokenizer {
namespace {

using nlohmann::json;

constexpr char32_t kBlock = 4096;

std::vector<std::vector<std::string>> Blocks() {
  std::vector<char32_t> begins;
  for (char32_t begin = 0; begin < 0x34000; begin += kBlock) begins.push_back(begin);
  begins.insert(begins.end(), {0xe0000, 0x10f000});
  std::vector<std::vector<std::string>> blocks;
  for (const char32_t begin : begins) {
    std::vector<std::string> characters;
    for (char32_t c = begin; c < begin + kBlock; ++c) {
      const bool is_surrogate = c >= 0xd800 && c <= 0xdfff;
      if (!is_surrogate) AppendUtf8(c, characters.emplace_back());
    }
    if (!characters.empty()) blocks.push_back(std::move(characters));
  }
  return blocks;
}

// Digests strings; each ends with a byte that is not in UTF-8.
class Digest {
 public:
  void Add(absl::string_view part) {
    sha_.Update(part);
    sha_.Update("\xff");
  }
  std::string Finish() { return base::ToHex(sha_.Finish()).substr(0, 8); }

 private:
  base::Sha256 sha_;
};

std::string DigestOfWords(const PreTokenizer& pre_tokenizer, const std::vector<std::string>& characters) {
  std::string text;
  for (const std::string& c : characters) absl::StrAppend(&text, "a", c, "b1", c, c, " ", c);
  Digest digest;
  const auto words = pre_tokenizer.Apply(text, /*is_first=*/true);
  for (const absl::string_view word : words->words) digest.Add(word);
  return digest.Finish();
}

std::string DigestOfNormalized(const Normalizer& normalizer, const std::vector<std::string>& characters) {
  Digest digest;
  for (const std::string& c : characters) {
    digest.Add(normalizer.Apply(absl::StrCat("e", c, "\u0301", c, "\u0323\u0327", c)));
  }
  return digest.Finish();
}

std::string DigestOfIds(const Tokenizer& tokenizer, const std::vector<std::string>& characters) {
  std::string text;
  for (const std::string& c : characters) absl::StrAppend(&text, " ", c, "<W>");
  Digest digest;
  digest.Add(absl::StrJoin(tokenizer.Encode(text).value(), " "));
  return digest.Finish();
}

std::function<std::string(const std::vector<std::string>&)> DigestOf(const json& expected) {
  static const std::string kFile = "unicode.json";
  if (expected.contains("pre_tokenizer")) {
    const JsonValue value(expected["pre_tokenizer"], kFile);
    return [pre_tokenizer = std::make_shared<PreTokenizer>(PreTokenizer::FromJson(value).value())](
               const std::vector<std::string>& block) { return DigestOfWords(*pre_tokenizer, block); };
  }
  if (expected.contains("normalizer")) {
    const JsonValue value(expected["normalizer"], kFile);
    return [normalizer = Normalizer::FromJson(value).value()](const std::vector<std::string>& block) {
      return DigestOfNormalized(normalizer, block);
    };
  }
  const TokenizerFile file("qwen2", expected["patch"]);
  return [tokenizer = std::make_shared<Tokenizer>(Tokenizer::Load(file.directory()).value())](
             const std::vector<std::string>& block) { return DigestOfIds(*tokenizer, block); };
}

TEST(Unicode, EveryCodePointIsAsInHuggingFace) {
  const std::string path = testing::SourcePath("tests/cases/tokenizer/unicode.json");
  const json cases = json::parse(base::ReadFile(path).value());
  ASSERT_GT(cases.size(), 10);
  const std::vector<std::vector<std::string>> blocks = Blocks();
  for (const json& expected : cases) {
    SCOPED_TRACE(expected.dump(-1, ' ', true).substr(0, 200));
    const auto digest_of = DigestOf(expected);
    ASSERT_EQ(expected["hashes"].size(), blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(digest_of(blocks[i]), expected["hashes"][i]) << "the block that starts with " << blocks[i][0];
    }
  }
}

// These characters were assigned in Unicode 15, 15.1 and 16.
TEST(Unicode, KnowsCharactersOfLaterVersions) {
  const json spec = {{"type", "Split"}, {"pattern", {{"Regex", R"(\p{L}+|\p{S}+)"}}}, {"behavior", "Isolated"}};
  const std::string kFile = "test";
  const PreTokenizer pre_tokenizer = PreTokenizer::FromJson(JsonValue(spec, kFile)).value();
  const Words words = pre_tokenizer.Apply("a\U0001fae8\U0001fae9\U0002ebf0\U000105c0b", true).value();
  EXPECT_EQ(words.words, (std::vector<absl::string_view>{"a", "\U0001fae8\U0001fae9",
                                                         "\U0002ebf0\U000105c0"
                                                         "b"}));
}

TEST(Nfc, SortsAndComposesHangulAndMarks) {
  EXPECT_EQ(ToNfc("e\u0323\u0301"), "\u1eb9\u0301");
  EXPECT_EQ(ToNfc("e\u0301\u0323"), "\u1eb9\u0301");
  EXPECT_EQ(ToNfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(ToNfc("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(ToNfc("\uac01\u11a8"), "\uac01\u11a8");
  EXPECT_EQ(ToNfc("\u0958"), "\u0915\u093c") << "an exclusion from composition";
  EXPECT_EQ(ToNfc("\u212b"), "\u00c5");
  EXPECT_EQ(ToNfc("\u0301a\u0301"), "\u0301\u00e1");
}

}  // namespace
}  // namespace foretoken::tokenizer
