// SPDX-License-Identifier: Apache-2.0
// Numbers and white space as Python makes them. If this test fails, prompts differ from Hugging Face's by a few bytes.
#include "common/chat/python_text.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::chat {
namespace {

TEST(PythonFloat, IsTheShortestTextThatReadsBackAsTheNumber) {
  EXPECT_EQ(PythonFloat(0.1), "0.1");
  EXPECT_EQ(PythonFloat(-0.0), "-0.0");
  EXPECT_EQ(PythonFloat(3), "3.0");
  EXPECT_EQ(PythonFloat(1234567.5), "1234567.5");
  EXPECT_EQ(PythonFloat(1e15), "1000000000000000.0");
  EXPECT_EQ(PythonFloat(1e16), "1e+16");
  EXPECT_EQ(PythonFloat(0.0001), "0.0001");
  EXPECT_EQ(PythonFloat(0.00001), "1e-05");
  EXPECT_EQ(PythonFloat(-1.5e300), "-1.5e+300");
  EXPECT_EQ(PythonFloat(std::numeric_limits<double>::infinity()), "inf");
}

TEST(PythonRepr, TakesTheQuotesThatTheTextDoesNotHave) {
  EXPECT_EQ(PythonRepr("a\n\\ \x01\u00fc"), "'a\\n\\\\ \\x01\u00fc'");
  EXPECT_EQ(PythonRepr("it's"), "\"it's\"");
  EXPECT_EQ(PythonRepr("it's \"x\""), "'it\\'s \"x\"'");
}

TEST(StripSpace, RemovesUnicodeSpacesAtTheChosenEnds) {
  constexpr char kText[] = "\u3000\t\x1c hi \u00a0\u2003\n";
  EXPECT_EQ(StripSpace(kText, true, true), "hi");
  EXPECT_EQ(StripSpace(kText, true, false), "hi \u00a0\u2003\n");
  EXPECT_EQ(StripSpace(kText, false, true), "\u3000\t\x1c hi");
  EXPECT_EQ(StripSpace("\u200bhi", true, true), "\u200bhi") << "a zero width space is no space";
  EXPECT_EQ(StripSpace(" \n", true, true), "");
}

TEST(NumCharacters, CountsCodePoints) {
  EXPECT_EQ(NumCharacters(""), 0u);
  EXPECT_EQ(NumCharacters("a\u00fc\u4e16\U0001f600"), 4u);
}

TEST(Characters, AreWhole) {
  EXPECT_THAT(Characters("a\u00fc\u4e16\U0001f600"), ::testing::ElementsAre("a", "\u00fc", "\u4e16", "\U0001f600"));
  EXPECT_THAT(Characters(""), ::testing::IsEmpty());
}

TEST(ChangeCase, ChangesLettersOfAllAlphabets) {
  EXPECT_EQ(ChangeCase("h\u00e9llo \u044f 1\U0001f600", true), "H\u00c9LLO \u042f 1\U0001f600");
  EXPECT_EQ(ChangeCase("H\u00c9LLO \u042f", false), "h\u00e9llo \u044f");
  EXPECT_EQ(ChangeCase("stra\u00dfe", true), "STRASSE");
  EXPECT_EQ(ChangeCase("\u00df\xff", false), "\u00df\xff") << "what is no text stays";
}

}  // namespace
}  // namespace foretoken::chat
