// SPDX-License-Identifier: Apache-2.0
// Texts that are made to be slow. Each takes about linear time, so a megabyte takes about a second even in a debug
// build. If this test fails, one request can block a server's tokenizer for minutes.
#include <string>

#include "absl/time/time.h"
#include "common/tokenizer/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/common/tokenizer/tokenizer_file.h"
#include "tests/testing/paths.h"
#include "tests/testing/thread_time.h"

namespace foretoken::tokenizer {
namespace {

constexpr size_t kTextBytes = 1 << 20;
// A release build takes a tenth of a second or less, one with sanitizers about ten. Quadratic work on a megabyte would
// take minutes to hours.
constexpr absl::Duration kLimit = absl::Seconds(20);

std::string Repeated(absl::string_view unit) {
  std::string text;
  while (text.size() < kTextBytes) text.append(unit.data(), unit.size());
  return text;
}

void ExpectFast(const Tokenizer& tokenizer, const std::string& text, const std::string& name) {
  SCOPED_TRACE(name);
  const absl::Duration start = testing::ThreadTime();
  const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text, {.parse_special = true});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_FALSE(tokenizer.Decode(*ids).value().empty());
  const absl::Duration used = testing::ThreadTime() - start;
  EXPECT_LT(used, kLimit);
  ::testing::Test::RecordProperty(name, absl::FormatDuration(used));
}

class AdversarialText : public ::testing::TestWithParam<const char*> {};

TEST_P(AdversarialText, EncodesInLinearTime) {
  const Tokenizer tokenizer =
      Tokenizer::Load(testing::SourcePath(std::string("tests/cases/tokenizer/") + GetParam())).value();
  ExpectFast(tokenizer, Repeated(" "), "spaces");
  ExpectFast(tokenizer, Repeated(" ") + "a", "spaces_then_letter");
  ExpectFast(tokenizer, Repeated("a"), "letters");
  ExpectFast(tokenizer, Repeated("\n"), "line_feeds");
  ExpectFast(tokenizer, Repeated("\t") + "\n", "tabs_then_line_feed");
  ExpectFast(tokenizer, Repeated("7"), "digits");
  ExpectFast(tokenizer, Repeated("!"), "punctuation");
  ExpectFast(tokenizer, Repeated("'"), "apostrophes");
  ExpectFast(tokenizer, Repeated(" \n"), "spaces_and_line_feeds");
  ExpectFast(tokenizer, Repeated(" a"), "spaces_and_letters");
  ExpectFast(tokenizer, Repeated("a1"), "letters_and_digits");
  ExpectFast(tokenizer, Repeated("!\n"), "punctuation_and_line_feeds");
  ExpectFast(tokenizer, Repeated("'s"), "contractions");
  ExpectFast(tokenizer, Repeated("\xe4\xb8\xad"), "ideographs");
  ExpectFast(tokenizer, Repeated("\xf0\x9f\x98\x80"), "emoji");
  ExpectFast(tokenizer, Repeated(std::string(1, '\0')), "nuls");
  ExpectFast(tokenizer, "a" + Repeated("\xcc\x81\xcc\xa3"), "combining_marks_in_the_wrong_order");
  ExpectFast(tokenizer, Repeated("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"), "hangul_to_compose");
  ExpectFast(tokenizer, Repeated("<"), "starts_of_special_tokens");
  ExpectFast(tokenizer, Repeated("<|reserved_special_token_0"), "almost_special_tokens");
  ExpectFast(tokenizer, Repeated("<|im_end|>"), "special_tokens");
  ExpectFast(tokenizer, Repeated("<|eot_id|> x </s>[INST]"), "special_tokens_and_text");
}

INSTANTIATE_TEST_SUITE_P(Styles, AdversarialText, ::testing::Values("llama3", "qwen2", "llama2", "mistral", "unigram"),
                         [](const auto& info) { return std::string(info.param); });

TEST(AdversarialPattern, IsStoppedByItsStepLimit) {
  const TokenizerFile file("qwen2", {{"pre_tokenizer",
                                      {{"type", "Split"},
                                       {"pretokenizers", nullptr},
                                       {"pattern", {{"Regex", "(?:a+)+(?:b|c)"}}},
                                       {"behavior", "Isolated"}}}});
  const Tokenizer tokenizer = Tokenizer::Load(file.directory()).value();
  EXPECT_TRUE(tokenizer.Encode("aaaab aaab").ok());
  const absl::Status status = tokenizer.Encode(std::string(200, 'a')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("(?:a+)+(?:b|c)"), absl::string_view::npos) << status;
}

TEST(AdversarialPattern, OfManyOverlappingClassesIsLinear) {
  const std::string upper = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", lower = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
  const std::string pattern = upper + "*" + lower + "+|" + upper + "+" + lower + "*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const nlohmann::json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
  const TokenizerFile file("qwen2", {{"pre_tokenizer", {{"pretokenizers", {split, {{"type", "ByteLevel"}}}}}}});
  const Tokenizer tokenizer = Tokenizer::Load(file.directory()).value();
  ExpectFast(tokenizer, Repeated("A"), "upper_case");
  ExpectFast(tokenizer, Repeated("\xe4\xb8\xad"), "neither_case");
  ExpectFast(tokenizer, Repeated("A") + "1", "upper_case_then_digit");
}

TEST(AdversarialModel, OfAUnigramWithLongTokensIsLinear) {
  using nlohmann::json;
  json vocab = json::array({json::array({"<unk>", 0.0})});
  for (int length = 1; length <= 128; length *= 2) {
    vocab.push_back(json::array({std::string(length, 'a'), -1.0 / length}));
  }
  const TokenizerFile file("unigram", {{"model", {{"vocab", vocab}}},
                                       {"added_tokens", nullptr},
                                       {"pre_tokenizer", nullptr},
                                       {"post_processor", nullptr}});
  const Tokenizer tokenizer = Tokenizer::Load(file.directory()).value();
  ExpectFast(tokenizer, Repeated("a"), "one_long_token");
  ExpectFast(tokenizer, Repeated("b"), "unknown");
}

TEST(AdversarialTokens, LeftStripLooksAtEachSpaceOnce) {
  nlohmann::json added = nlohmann::json::parse(R"([{"id": 1200, "content": "<x>", "lstrip": true, "rstrip": true}])");
  const TokenizerFile file("qwen2", {{"added_tokens", added}, {"normalizer", nullptr}});
  const Tokenizer tokenizer = Tokenizer::Load(file.directory()).value();
  ExpectFast(tokenizer, Repeated(" ") + Repeated("<x>"), "many_tokens_behind_many_spaces");
  ExpectFast(tokenizer, Repeated(" <x>"), "tokens_between_spaces");
}

}  // namespace
}  // namespace foretoken::tokenizer
