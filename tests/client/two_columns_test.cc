// SPDX-License-Identifier: Apache-2.0
// If these tests fail, `foretoken compare` shows texts cut off, shifted or in the wrong column.
#include "client/two_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "absl/time/time.h"

namespace foretoken::client {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Columns of 18 characters.
std::vector<std::string> Lines(std::vector<TextRun> left, std::vector<TextRun> right) {
  return ToLines({.left = std::move(left), .right = std::move(right), .width = 40});
}

TEST(TwoColumns, PutsLinesSideBySide) {
  EXPECT_THAT(Lines({{"def f():\n    return 1\n"}}, {{"def f():"}}),
              ElementsAre("def f():           │ def f():", "    return 1       │ "));
  EXPECT_THAT(Lines({}, {{"a\n\nb"}}),
              ElementsAre("                   │ a", "                   │ ", "                   │ b"));
  EXPECT_THAT(Lines({}, {{"\n\n"}}), IsEmpty());
}

TEST(TwoColumns, BreaksALongLineAtAWordAndIndentsTheRest) {
  EXPECT_THAT(Lines({}, {{"  return first + second"}}),
              ElementsAre("                   │   return first + ", "                   │     second"));
  EXPECT_THAT(Lines({}, {{"abcdefghijklmnopqrstuvwxyz"}}),
              ElementsAre("                   │ abcdefghijklmnopqr", "                   │   stuvwxyz"));
  EXPECT_THAT(Lines({}, {{std::string(60, ' ') + "deep"}}).back(), EndsWith("│          deep"));
}

// A release build takes a fraction of a second. Work that is quadratic in the line takes minutes.
TEST(TwoColumns, BreaksALineOfAMegabyteInLinearTime) {
  const auto used = [] {  // of this thread's processor, because the machine may be busy
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return absl::DurationFromTimespec(now);
  };
  constexpr size_t kLength = 1 << 20;
  const absl::Duration begin = used();
  const std::vector<std::string> lines = Lines({}, {{std::string(kLength, 'x')}});
  EXPECT_LT(used() - begin, absl::Seconds(20));
  EXPECT_EQ(lines.size(), 1 + (kLength - 18 + 15) / 16) << "18 characters in the first line, 16 in the others";
}

TEST(TwoColumns, CountsCharactersNotBytesEvenWhereARunCutsOne) {
  EXPECT_THAT(Lines({{"na\xc3"}, {"\xafve"}}, {{"x"}}), ElementsAre("naïve              │ x"));
}

TEST(TwoColumns, PaintsWhatSpeculationWon) {
  const TwoColumns columns = {.left = {{"ab"}}, .right = {{"a"}, {"b\nc", true}, {"d"}}, .width = 40, .color = true};
  EXPECT_THAT(ToLines(columns),
              ElementsAre("ab                 │ a\x1b[32mb\x1b[0m", "                   │ \x1b[32mc\x1b[0md"));
}

TEST(TwoColumns, LetsNoTextCommandTheTerminal) {
  EXPECT_THAT(Lines({{"a\x1b[2Jb\tc"}}, {}), ElementsAre(StartsWith("a\\x1b[2Jb    c ")));
}

TEST(Rule, MeetsTheLineBetweenTheColumns) { EXPECT_EQ(Rule(40, "┼"), "───────────────────┼───────────────────"); }

}  // namespace
}  // namespace foretoken::client
