// SPDX-License-Identifier: Apache-2.0
// If these tests fail, `foretoken generate` colours the wrong parts of a text as accepted guesses.
#include "client/text_attribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateResponse;

struct Token {
  uint32_t text_end;
  bool speculated;
};

GenerateResponse Message(const std::string& text, const std::vector<Token>& tokens) {
  GenerateResponse response;
  response.set_text(text);
  for (const Token& token : tokens) {
    response.add_text_ends(token.text_end);
    response.add_speculated(token.speculated);
  }
  return response;
}

// The runs as one text, with speculated runs in brackets.
std::string Show(const std::vector<TextRun>& runs) {
  std::string shown;
  for (const TextRun& run : runs) absl::StrAppend(&shown, run.speculated ? "[" + run.text + "]" : run.text, "|");
  return shown;
}

TEST(TextAttribution, CutsAMessageAtTokenEnds) {
  TextAttribution attribution;
  EXPECT_EQ(Show(attribution.Append(Message("hello you", {{2, false}, {5, true}, {9, true}}))), "he|[llo you]|");
}

TEST(TextAttribution, GivesLateTextToItsToken) {
  TextAttribution attribution;
  EXPECT_EQ(Show(attribution.Append(Message("a", {{1, false}, {3, true}, {4, false}}))), "a|");
  EXPECT_EQ(Show(attribution.Append(Message("bcd", {}))), "[bc]|d|");
}

TEST(TextAttribution, GivesACharacterToTheTokenThatCompletesIt) {
  TextAttribution attribution;
  EXPECT_EQ(Show(attribution.Append(Message("", {{0, false}}))), "");
  EXPECT_EQ(Show(attribution.Append(Message("é", {{2, true}}))), "[é]|");
}

TEST(TextAttribution, GivesTextBeyondTheLastTokenToIt) {
  TextAttribution attribution;
  EXPECT_EQ(Show(attribution.Append(Message("ab\uFFFD", {{1, false}, {2, true}}))), "a|[b\uFFFD]|");
}

// A terminal takes U+009B for a command, and only a whole character can be escaped.
TEST(TextAttribution, CutsNoCharacter) {
  TextAttribution attribution;
  EXPECT_EQ(Show(attribution.Append(Message("a\u009b31m", {{2, false}, {4, true}}))), "a\u009b|[31m]|");
}

TEST(TextAttribution, CountsTextOfAnUnknownTokenAsPlain) {
  TextAttribution attribution;
  GenerateResponse response;
  response.set_text("abc");
  response.add_speculated(true);
  EXPECT_EQ(Show(attribution.Append(response)), "abc|");
}

}  // namespace
}  // namespace foretoken::client
