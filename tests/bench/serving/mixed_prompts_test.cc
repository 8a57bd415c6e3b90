// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/mixed_prompts.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "tests/testing/paths.h"

namespace foretoken::bench {
namespace {

TEST(MixedPrompts, AreOneOfEachKindAndAllDifferent) {
  const std::vector<std::string> fresh = {"def f():\n", "class A:\n", "import os\n", "x = 1\n",
                                          "y = 2\n",    "z = 3\n",    "for i in",    "while "};
  const std::vector<std::string> prompts = MixedPrompts(fresh);
  EXPECT_EQ(prompts.size(), fresh.size() * kPromptKinds);
  EXPECT_EQ(std::set(prompts.begin(), prompts.end()).size(), prompts.size());
  EXPECT_EQ(prompts[kPromptKinds], fresh[1]);
}

// The demo target's context has 1,024 tokens; 128 and more are left to be generated.
TEST(EditedFilePrompt, LeavesRoomInTheContext) {
  const auto tokenizer = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target")).value();
  for (int variant = 0; variant < 8; ++variant) {
    const size_t num_tokens = tokenizer.Encode(EditedFilePrompt(variant)).value().size();
    EXPECT_GT(num_tokens, 650) << variant;
    EXPECT_LT(num_tokens, 890) << variant;
  }
}

}  // namespace
}  // namespace foretoken::bench
