// SPDX-License-Identifier: Apache-2.0
// If these tests fail, commands read other files than the user names, or hide which one cannot be read.
#include "client/commands/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/prompt_lines.h"
#include "tests/testing/paths.h"

namespace foretoken::client {
namespace {

using ::testing::HasSubstr;

TEST(ReadText, ReadsTheDemosPrompts) {
  EXPECT_EQ(ParsePromptLines(*ReadText("--prompt_file", testing::SourcePath("deploy/demo/prompts.jsonl")))->size(), 32);
}

TEST(ReadText, NamesTheFileItCannotRead) {
  for (const std::string& path : {testing::SourcePath("no/such/file"), testing::SourcePath("client")}) {
    const auto text = ReadText("--prompt_file", path);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kNotFound) << path;
    EXPECT_THAT(std::string(text.status().message()), HasSubstr(path));
  }
}

TEST(ReadText, DoesNotTakeAnErrorForTheEnd) {
  const auto text = ReadText("--prompt_file", "/proc/self/mem");
  EXPECT_EQ(text.status(), absl::UnavailableError("--prompt_file: cannot read /proc/self/mem to its end"));
}

}  // namespace
}  // namespace foretoken::client
