// SPDX-License-Identifier: Apache-2.0
// If these tests fail, the merging part of serving_bench measures wrong prompts.
#include "tests/bench/serving/mixed_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace foretoken::bench {
namespace {

TEST(MixedPrompts, AreOneOfEachKindInTurnAndAllDifferent) {
  std::vector<std::string> fresh, edited;
  for (int i = 0; i < 32; ++i) {
    fresh.push_back("fresh " + std::to_string(i));
    edited.push_back("edited " + std::to_string(i));
  }
  const std::vector<std::string> prompts = MixedPrompts(fresh, edited);
  EXPECT_EQ(prompts.size(), 32 * kPromptKinds);
  EXPECT_EQ(std::set(prompts.begin(), prompts.end()).size(), prompts.size());
  EXPECT_EQ(prompts[kPromptKinds], "fresh 1");
  EXPECT_EQ(prompts[kPromptKinds + 2], "edited 1");
}

TEST(EditedFilePrompt, EndsWhereTheBodyOfTheCopyBegins) {
  const std::string prompt = EditedFilePrompt("def f():\n", "    return 1\n");
  EXPECT_THAT(prompt, ::testing::StartsWith("def f():\n    return 1\n"));
  EXPECT_THAT(prompt, ::testing::EndsWith("\ndef f():\n"));
}

}  // namespace
}  // namespace foretoken::bench
