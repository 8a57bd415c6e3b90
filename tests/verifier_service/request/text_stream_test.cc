// SPDX-License-Identifier: Apache-2.0
// The text of a token stream. If this test fails, clients get broken characters, late text, or text after a stop
// string.
#include "verifier_service/request/text_stream.h"

#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"

namespace foretoken::verifier {
namespace {

class TextStreamTest : public ::testing::Test {
 protected:
  std::vector<int32_t> Encode(const std::string& text) { return *tokenizer_.Encode(text); }

  tokenizer::Tokenizer tokenizer_ = *tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target"));
};

TEST_F(TextStreamTest, NeverSplitsACharacter) {
  const std::string text = "x \xF0\x9F\xA6\x8A y";  // a fox character of several byte tokens
  TextStream stream(tokenizer_, {});
  std::string all;
  for (int32_t id : Encode(text)) {
    const std::string piece = stream.Append(id, true).text;
    EXPECT_FALSE(tokenizer::FirstInvalidUtf8(piece)) << piece;
    all += piece;
  }
  EXPECT_EQ(all + stream.Flush(), text);
}

TEST_F(TextStreamTest, HalfACharacterAtTheEndBecomesTheReplacementCharacter) {
  std::vector<int32_t> ids = Encode("\xF0\x9F\xA6\x8A");
  ASSERT_GT(ids.size(), 1);
  TextStream stream(tokenizer_, {});
  EXPECT_EQ(stream.Append(ids.front(), true).text, "");
  EXPECT_EQ(stream.Flush(), "\xEF\xBF\xBD");
}

TEST_F(TextStreamTest, ACharacterThatThePromptBeginsIsReleasedWhole) {
  const std::string fox = "\xF0\x9F\xA6\x8A";
  const std::vector<int32_t> ids = Encode("ab" + fox + fox);
  const size_t num_generated = Encode(fox).size() - 1;
  ASSERT_GT(num_generated, 0);
  const std::span<const int32_t> all(ids);
  TextStream stream(tokenizer_, {.prompt = all.first(ids.size() - num_generated)});
  std::string text;
  for (const int32_t id : all.last(num_generated)) text += stream.Append(id, true).text;
  EXPECT_EQ(text, fox);
  TextStream other(tokenizer_, {.prompt = all.first(ids.size() - num_generated)});
  EXPECT_EQ(other.Append(Encode("x").front(), true).text, "\xEF\xBF\xBDx") << "as in a stream that went on";
}

TEST_F(TextStreamTest, ASpecialTokenEndsACharacterOfThePrompt) {
  std::vector<int32_t> prompt = Encode("ab\xF0\x9F\xA6\x8A");
  prompt.pop_back();
  int32_t special = 0;
  while (!tokenizer_.vocabulary().IsSpecial(special)) ++special;
  for (int num_special = 1; num_special <= 3; ++num_special) {
    prompt.push_back(special);
    TextStream stream(tokenizer_, {.prompt = prompt});
    EXPECT_EQ(stream.Append(Encode("x").front(), true).text, "x") << num_special;
  }
}

TEST_F(TextStreamTest, WholeCharactersOfThePromptAreNotReleased) {
  const std::vector<int32_t> prompt = Encode("\xF0\x9F\xA6\x8A x");
  TextStream stream(tokenizer_, {.prompt = prompt});
  EXPECT_EQ(stream.Append(Encode("y").front(), true).text, "y");
}

TEST_F(TextStreamTest, StopsAtAStringSpelledByManyTokens) {
  TextStream stream(tokenizer_, {.stop_strings = {"nowhere", "class Fox_Trot_9:"}});
  std::string all;
  for (int32_t id : Encode("a = 1\nclass Fox_Trot_9:\n    pass")) {
    const TextStream::Appended appended = stream.Append(id, true);
    all += appended.text;
    if (!appended.matched_stop_string) continue;
    EXPECT_EQ(appended.matched_stop_string, 1);
    EXPECT_EQ(all, "a = 1\n");
    return;
  }
  FAIL() << "no match";
}

TEST_F(TextStreamTest, AStringThatDoesNotCountYetIsText) {
  TextStream stream(tokenizer_, {.stop_strings = {"ab"}});
  std::string all;
  for (int32_t id : Encode("ab cd")) {
    const TextStream::Appended appended = stream.Append(id, false);
    EXPECT_FALSE(appended.matched_stop_string);
    all += appended.text;
  }
  EXPECT_EQ(all + stream.Flush(), "ab cd");
}

TEST_F(TextStreamTest, SkipsSpecialTokensOnlyWhenAsked) {
  constexpr int32_t kEndOfText = 4092;
  const std::string spelling = tokenizer_.vocabulary().Find(kEndOfText)->spelling;
  EXPECT_EQ(TextStream(tokenizer_, {.skip_special_tokens = true}).Append(kEndOfText, true).text, "");
  EXPECT_EQ(TextStream(tokenizer_, {.skip_special_tokens = false}).Append(kEndOfText, true).text, spelling);
}

}  // namespace
}  // namespace foretoken::verifier
