// SPDX-License-Identifier: Apache-2.0
// If these tests fail, a model's output can control the user's terminal, or colours appear in files.
#include "client/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

TEST(ForTerminal, ColoursOnlyAcceptedGuesses) {
  EXPECT_EQ(ForTerminal({.text = "x", .speculated = true}, /*color=*/true), "\x1b[32mx\x1b[0m");
  EXPECT_EQ(ForTerminal({.text = "x", .speculated = false}, /*color=*/true), "x");
  EXPECT_EQ(ForTerminal({.text = "x", .speculated = true}, /*color=*/false), "x");
}

TEST(ForTerminal, MakesControlCharactersVisible) {
  EXPECT_EQ(ForTerminal({.text = "a\x1b[2Jb\x7f\r"}, /*color=*/false), "a\\x1b[2Jb\\x7f\\x0d");
  EXPECT_EQ(ForTerminal({.text = "\u009b2J"}, /*color=*/false), "\\x9b2J");
}

// Names and messages of a server.
TEST(EscapeControls, LeavesNoCodeForTheTerminal) {
  EXPECT_EQ(EscapeControls("ngram\x1b]0;owned\x07 \u009b2J\n"), "ngram\\x1b]0;owned\\x07 \\x9b2J\n");
}

TEST(JsonText, IsAscii) {
  EXPECT_EQ(JsonText({{"text", "\u009b2J\x7f\x1b"}}), "{\n  \"text\": \"\\u009b2J\\u007f\\u001b\"\n}");
  EXPECT_EQ(JsonText({{"path", "a\xff"}}), "{\n  \"path\": \"a\\ufffd\"\n}");
}

TEST(ForTerminal, KeepsTextLinesAndTabs) {
  EXPECT_EQ(ForTerminal({.text = "\tdéjà\n\u00a0"}, /*color=*/false), "\tdéjà\n\u00a0");
}

TEST(WantsColor, FollowsTheTerminalAndNoColor) {
  int leader = -1;
  int follower = -1;
  ASSERT_EQ(openpty(&leader, &follower, nullptr, nullptr, nullptr), 0);
  std::FILE* terminal = fdopen(follower, "w");
  EXPECT_TRUE(WantsColor(terminal, nullptr));
  EXPECT_TRUE(WantsColor(terminal, ""));
  EXPECT_FALSE(WantsColor(terminal, "1"));
  std::FILE* file = std::tmpfile();
  EXPECT_FALSE(WantsColor(file, nullptr));
  std::fclose(file);
  std::fclose(terminal);
  close(leader);
}

}  // namespace
}  // namespace foretoken::client
