// SPDX-License-Identifier: Apache-2.0
// Flags and help texts. If this test fails, a program ignores a flag or a spelling mistake without a word, or its help
// is wrong.
#include "common/flags/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "common/base/version.h"

ABSL_FLAG(bool, with_colour, true, "whether to colour");
ABSL_FLAG(std::optional<bool>, ignore_ends, std::nullopt, "whether to go on");
ABSL_FLAG(std::optional<uint32_t>, most_tokens, std::nullopt,
          "how many tokens may come at most, which is a thing that takes a long sentence to explain to everybody");
ABSL_FLAG(std::string, note, "none", "a note");
ABSL_FLAG(absl::Duration, patience, absl::Seconds(5), "how long to wait");
ABSL_FLAG(double, pitch, 440, "hertz");
ABSL_FLAG(int32_t, verse, 1, "which verse comes first");

namespace foretoken::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Read(const std::vector<std::string>& arguments) {
  const absl::StatusOr<std::vector<std::string>> words = AbseilArguments(arguments);
  EXPECT_TRUE(words.ok()) << words.status();
  return words.value_or(std::vector<std::string>());
}

TEST(AbseilArguments, DashesAndUnderscoresMeanTheSameInNames) {
  EXPECT_THAT(Read({"--most-tokens=5", "a-b"}), ElementsAre("--most_tokens=5", "a-b"));
  EXPECT_THAT(Read({"--most-tokens", "5"}), ElementsAre("--most_tokens", "5"));
  EXPECT_THAT(Read({"--note", "--most-tokens"}), ElementsAre("--note", "--most-tokens")) << "it is the note";
  EXPECT_THAT(Read({"--note=a-b"}), ElementsAre("--note=a-b"));
}

TEST(AbseilArguments, BoolFlagsNeedNoValue) {
  for (const std::string name : {"with_colour", "ignore_ends", "ignore-ends"}) {
    std::string flag = name;
    if (name == "ignore-ends") flag = "ignore_ends";
    EXPECT_THAT(Read({"--" + name, "hi"}), ElementsAre("--" + flag + "=true", "hi"));
    EXPECT_THAT(Read({"--no" + name, "hi"}), ElementsAre("--" + flag + "=false", "hi"));
    EXPECT_THAT(Read({"--no-" + name}), ElementsAre("--" + flag + "=false"));
    EXPECT_THAT(Read({"--no_" + name}), ElementsAre("--" + flag + "=false"));
    EXPECT_THAT(Read({"--" + name + "=true"}), ElementsAre("--" + flag + "=true"));
    EXPECT_THAT(Read({"--" + name, "false", "hi"}), ElementsAre("--" + flag + "=false", "hi"));
  }
  EXPECT_THAT(Read({"--note=no"}), ElementsAre("--note=no"));
}

TEST(ParseCommandLineDeathTest, AFlagThatNeedsAValueIsRefusedWithoutIt) {
  const CommandLine line = {.program = "p", .needs_value = {"note"}};
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--note="}, {"--note", ""}, {"--note"}, {"a", "--note=", "b"}}) {
    EXPECT_EXIT(ParseCommandLine(arguments, line), ::testing::ExitedWithCode(1),
                "p: --note: expected a value, got none");
  }
  EXPECT_THAT(ParseCommandLine({"--note=x", "--", "--note="}, line), ElementsAre("--note="));
}

TEST(ParseCommandLineDeathTest, SaysWhatAFlagTakes) {
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } kWrong[] = {
      {{"--patience=30"}, "p: --patience: expected a duration as in 30s or 5m, got \"30\""},
      {{"a", "--patience", "30", "b"}, "p: --patience: expected a duration as in 30s or 5m, got \"30\""},
      {{"--patience=9s", "--patience="}, "p: --patience: expected a duration as in 30s or 5m, got \"\""},
      {{"--verse=1.5"}, "p: --verse: expected a whole number, got \"1.5\""},
      {{"--most-tokens=-1"}, "p: --most_tokens: expected a whole number of at least 0, got \"-1\""},
      {{"--pitch=high"}, "p: --pitch: expected a number, got \"high\""},
      {{"--with-colour=perhaps"}, "p: --with_colour: expected true or false, got \"perhaps\""},
      {{"--verse"}, "p: --verse: expected a value, got none"},
  };
  for (const auto& [arguments, message] : kWrong) {
    EXPECT_EXIT(ParseCommandLine(arguments, {.program = "p"}), ::testing::ExitedWithCode(1), message);
  }
}

TEST(ParseCommandLine, TakesTheLastValueOfAFlagAndNoneAfterTwoDashes) {
  EXPECT_THAT(ParseCommandLine({"--patience=1s", "--patience", "2m", "--", "--patience=3"}, {.program = "p"}),
              ElementsAre("--patience=3"));
  EXPECT_EQ(absl::GetFlag(FLAGS_patience), absl::Minutes(2));
}

TEST(AbseilArguments, ArgumentsAfterTwoDashesAreNotFlags) {
  EXPECT_THAT(Read({"-", "--", "--most-tokens"}), ElementsAre("-", "--", "--most-tokens"));
}

TEST(AbseilArguments, NamesAnUnknownFlagAndASimilarOne) {
  EXPECT_EQ(AbseilArguments({"--most-token=5"}).status().message(), "unknown flag --most-token; is it --most_tokens?");
  EXPECT_THAT(std::string(AbseilArguments({"--sing"}).status().message()), HasSubstr("unknown flag --sing; --help"));
  EXPECT_FALSE(AbseilArguments({"--no-note"}).ok());
  EXPECT_FALSE(AbseilArguments({"--no-ignore-ends=true"}).ok());
}

// With them, a file or the environment would set flags that nobody has checked.
TEST(AbseilArguments, KnowsNoneOfAbseilsOwnFlagsThatReadFlags) {
  for (const std::string name : {"flagfile", "fromenv", "tryfromenv", "undefok"}) {
    EXPECT_EQ(AbseilArguments({"--" + name + "=note"}).status().message(),
              "unknown flag --" + name + "; --help shows all flags, and arguments after -- are not flags");
  }
  EXPECT_THAT(std::string(AbseilArguments({"--flag-fil=x"}).status().message()), HasSubstr("--flag-fil; --help"));
}

TEST(ParseCommandLineDeathTest, RefusesAFlagOfAnotherCommand) {
  const std::vector<std::string> files = {"flags/command_line_test.cc"};
  const CommandLine line = {
      .program = "singer", .flags = {"note"}, .command_flag_files = files, .needs_value = {"pitch"}};
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--pitch=5"}, {"--note=x", "--pitch", "5"}, {"--pitch="}}) {
    EXPECT_EXIT(ParseCommandLine(arguments, line), ::testing::ExitedWithCode(1),
                "^singer: --pitch is a flag of other commands; --help shows the flags of this one\n$");
  }
  EXPECT_EXIT(ParseCommandLine({"--no-with-colour"}, line), ::testing::ExitedWithCode(1), "^singer: --with_colour is");
  EXPECT_THAT(ParseCommandLine({"--note=x", "--", "--pitch=5"}, line), ElementsAre("--pitch=5"));
  EXPECT_THAT(ParseCommandLine({"--pitch=5"}, {.program = "p", .flag_files = files, .command_flag_files = files}),
              ElementsAre());
}

TEST(AbseilArguments, SuggestsNoFlagOfAnotherCommand) {
  const CommandLine line = {.flags = {"note"}, .command_flag_files = {"flags/command_line_test.cc"}};
  EXPECT_THAT(std::string(AbseilArguments({"--pitc=5"}).status().message()), HasSubstr("is it --pitch?"));
  EXPECT_THAT(std::string(AbseilArguments({"--pitc=5"}, line).status().message()), HasSubstr("--pitc; --help shows"));
}

TEST(HelpText, ShowsSingleFlagsOfOtherFiles) {
  EXPECT_EQ(HelpText({.program = "singer", .summary = "Sings.", .flags = {"note"}}),
            "singer: Sings.\n\nusage: singer [--FLAG=VALUE]...\n\n  --note (default none)\n      a note\n");
}

TEST(HelpText, ShowsTheUsageAndTheFlagsOfTheFiles) {
  const CommandLine line = {
      .program = "singer", .summary = "Sings.", .arguments = "SONG", .flag_files = {"flags/command_line_test.cc"}};
  EXPECT_EQ(HelpText(line), R"(singer: Sings.

usage: singer [--FLAG=VALUE]... SONG

  --ignore_ends
      whether to go on
  --most_tokens
      how many tokens may come at most, which is a thing that takes a long sentence to explain to
      everybody
  --note (default none)
      a note
  --patience (default 5s)
      how long to wait
  --pitch (default 440)
      hertz
  --verse (default 1)
      which verse comes first
  --with_colour (default true)
      whether to colour
)");
}

TEST(ParseCommandLineDeathTest, EndsAfterHelpVersionAndMistakes) {
  const CommandLine line = {.program = "singer", .summary = "Sings."};
  EXPECT_EXIT(ParseCommandLine({"--note=x", "-h"}, line), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ParseCommandLine({"--version"}, line), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ParseCommandLine({"--sing"}, line), ::testing::ExitedWithCode(1), "^singer: unknown flag --sing");
  EXPECT_EQ(VersionLine("singer"), std::string("singer ") + base::Version());
}

TEST(ParseCommandLine, SetsFlagsAndReturnsTheRest) {
  EXPECT_THAT(ParseCommandLine({"a", "--most-tokens", "7", "--ignore-ends", "b"}, {.program = "singer"}),
              ElementsAre("a", "b"));
  EXPECT_EQ(absl::GetFlag(FLAGS_most_tokens), 7);
  EXPECT_EQ(absl::GetFlag(FLAGS_ignore_ends), true);
}

}  // namespace
}  // namespace foretoken::flags
