// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/regex_check.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;

TEST(BadRegex, AnchorsAtTheEndsAreNotInside) {
  for (const char* const pattern : {"", "a", "^a$", "^a|b$", "^a$|^b$", "(^a|b$)", "(?:^a)b", "a(b$)", "((^a))", "[^a]",
                                    "a[$^]b", "a\\^b", "a\\$b", "[\\]^]a", "^$", "(^a)?b", "^(a)+$", "(^(a)+)"}) {
    EXPECT_EQ(BadRegex(pattern), "") << pattern;
  }
}

TEST(BadRegex, OtherAnchorsAre) {
  for (const char* const pattern : {"a^b", "a$b", "a(^b)", "(a$)b", "(a|^b)", "(a$|b)", "a(b|^c)", "a^", "$a", "[a]^b",
                                    "(^a)+", "((^a))*", "(a$){2}", "(((^a))b){1,3}"}) {
    EXPECT_EQ(BadRegex(pattern), "anchors are not supported inside") << pattern;
  }
}

TEST(BadRegex, NamesAnEscapeThatNobodyKnows) {
  EXPECT_EQ(BadRegex("\\Aabc"), "the escape \\A is not supported");
  EXPECT_EQ(BadRegex("abc\\Z"), "the escape \\Z is not supported");
  EXPECT_EQ(BadRegex("a\\z"), "the escape \\z is not supported");
  EXPECT_EQ(BadRegex("[\\h]"), "the escape \\h is not supported");
  EXPECT_THAT(BadRegex("\\x41b"), HasSubstr("expected \\u0041"));
  for (const char* const pattern :
       {"\\\\A", "\\d\\D\\w\\W\\s\\S\\n\\r\\t\\f\\v", "\\x41-", "\\u0041", "\\-\\.\\/\\é"}) {
    EXPECT_EQ(BadRegex(pattern), "") << pattern;
  }
}

}  // namespace
}  // namespace foretoken::verifier
