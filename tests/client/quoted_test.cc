// SPDX-License-Identifier: Apache-2.0
// If these tests fail, a model's output can control the user's terminal, or its tokens are shown wrongly.
#include "client/quoted.h"

#include <gtest/gtest.h>

namespace foretoken::client {
namespace {

TEST(Quoted, IsOneLineWithoutControlCharacters) {
  EXPECT_EQ(Quoted("\n  déjà", 80), R"("\n  déjà")");
  EXPECT_EQ(Quoted("say \"hi\\\"\t\x1b[2J", 80), R"("say \"hi\\\"\t\033[2J")");
  EXPECT_EQ(Quoted("\u009b2J", 80), R"("\xc2\x9b2J")");
  EXPECT_EQ(Quoted("", 80), R"("")");
}

TEST(Quoted, ShowsBytesThatAreNoCharacter) {
  EXPECT_EQ(Quoted("a\xe2\x82", 80), R"("a\xe2\x82")");
  EXPECT_EQ(Quoted("\x80\xffz", 80), R"("\x80\xffz")");
  EXPECT_EQ(Quoted("\xed\xa0\x80", 80), R"("\xed\xa0\x80")");  // a surrogate
}

TEST(Quoted, EndsWithAnEllipsisWhereThereIsNoRoom) {
  EXPECT_EQ(Quoted("abcdef", 8), R"("abcdef")");
  EXPECT_EQ(Quoted("abcdefg", 8), R"("abcde…")");
  EXPECT_EQ(Quoted("abcde\n\n", 8), R"("abcde…")");
  EXPECT_EQ(Quoted("ééééééé", 8), R"("ééééé…")");
  EXPECT_EQ(Quoted("abc", 3), R"("…")");
}

TEST(Padded, CountsCharacters) {
  EXPECT_EQ(Padded("é→", 4), "é→  ");
  EXPECT_EQ(Padded("abcde", 4), "abcde");
  EXPECT_EQ(NumColumns("├─ ✓"), 4);
}

}  // namespace
}  // namespace foretoken::client
