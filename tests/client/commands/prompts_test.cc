// SPDX-License-Identifier: Apache-2.0
// If these tests fail, commands read wrong prompts from files, or hide which line is wrong.
#include "client/commands/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/paths.h"

namespace foretoken::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParsePromptLines, ReadsPromptsAndSkipsEmptyLines) {
  EXPECT_THAT(*ParsePromptLines("{\"prompt\": \"a\\nb\"}\n\n{\"prompt\": \"c\", \"other\": 1}\r\n"),
              ElementsAre("a\nb", "c"));
}

TEST(ParsePromptLines, NamesTheLineThatIsNoPrompt) {
  for (const char* line : {"nonsense", "[]", "{}", "{\"prompt\": 3}", "{\"prompt\": \"x\"", "\"prompt\""}) {
    const auto prompts = ParsePromptLines(std::string("{\"prompt\": \"a\"}\n") + line);
    EXPECT_EQ(prompts.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(prompts.status().message()), HasSubstr("line 2")) << line;
  }
}

TEST(ParsePromptLines, RefusesAFileWithoutPrompts) {
  EXPECT_EQ(ParsePromptLines("\n").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReadText, ReadsTheDemosPrompts) {
  EXPECT_EQ(ParsePromptLines(*ReadText("prompt_file", testing::SourcePath("deploy/demo/prompts.jsonl")))->size(), 32);
}

TEST(ReadText, NamesTheFileItCannotRead) {
  for (const std::string& path : {testing::SourcePath("no/such/file"), testing::SourcePath("client")}) {
    const auto text = ReadText("prompt_file", path);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kNotFound) << path;
    EXPECT_THAT(std::string(text.status().message()), HasSubstr(path));
  }
}

}  // namespace
}  // namespace foretoken::client
