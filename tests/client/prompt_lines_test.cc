// SPDX-License-Identifier: Apache-2.0
// If these tests fail, commands read wrong prompts from files, or hide which line is wrong.
#include "client/prompt_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace foretoken::client
