// SPDX-License-Identifier: Apache-2.0
// If these tests fail, a client shows wrong output, or crashes on a message that breaks the protocol.
#include "client/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/speculation/token_tree.h"

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateResponse;
using ::testing::HasSubstr;

// Expects that Append refuses a message with an error that contains this text.
void ExpectInternal(const absl::Status& status, const std::string& what) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr(what));
}

TEST(Append, SeparatesThePromptFromTheSamples) {
  GenerateResponse response;
  response.mutable_prompt()->set_text("the prompt");
  Generation generation;
  EXPECT_TRUE(Append(response, generation).ok());
  EXPECT_EQ(generation.prompt->text(), "the prompt");
  EXPECT_TRUE(generation.samples.empty());
}

TEST(Append, RefusesASampleIndexOutOfRange) {
  GenerateResponse response;
  response.set_sample_index(kMaxSamples);
  Generation generation;
  ExpectInternal(Append(response, generation), "sample_index 64");
}

TEST(Append, RefusesParallelArraysOfDifferentLengths) {
  GenerateResponse response;
  response.add_token_ids(1);
  response.add_token_ids(2);
  Generation generation;
  GenerateResponse speculated = response;
  speculated.add_speculated(true);
  ExpectInternal(Append(speculated, generation), "1 entries of speculated for 2 token_ids");
  GenerateResponse text_ends = response;
  text_ends.add_text_ends(1);
  ExpectInternal(Append(text_ends, generation), "text_ends");
  GenerateResponse logprobs = response;
  logprobs.add_logprobs();
  ExpectInternal(Append(logprobs, generation), "logprobs");
}

void AddNode(int parent, foretoken::v1::StepTree& tree) {
  tree.add_token_ids(7);
  tree.add_parents(parent);
  tree.add_chances(.5f);
  tree.add_path_chances(.5f);
  tree.add_proposers(1);
  tree.add_planned(true);
}

TEST(Append, RefusesReportsWithInvalidNodes) {
  GenerateResponse good;
  foretoken::v1::StepReport& step = *good.add_steps();
  for (int node = 0; node < 2; ++node) AddNode(node - 1, *step.mutable_tree());
  step.add_accepted(1);
  Generation generation;
  EXPECT_TRUE(Append(good, generation).ok());
  EXPECT_EQ(generation.samples.at(0).steps.size(), 1);

  GenerateResponse shorter = good;
  shorter.mutable_steps(0)->mutable_tree()->mutable_planned()->RemoveLast();
  ExpectInternal(Append(shorter, generation), "a tree of 2 tokens with an array of 1");
  GenerateResponse loop = good;
  loop.mutable_steps(0)->mutable_tree()->set_parents(1, 1);
  ExpectInternal(Append(loop, generation), "node 1 has the parent 1; expected -1 to 0");
  GenerateResponse above = good;
  above.mutable_steps(0)->mutable_tree()->set_parents(0, -2);
  ExpectInternal(Append(above, generation), "node 0 has the parent -2");
  GenerateResponse beyond = good;
  beyond.mutable_steps(0)->add_accepted(2);
  ExpectInternal(Append(beyond, generation), "accepted node 2 of a tree of 2");
}

// The drawing of a tree has a call for each level.
TEST(CheckStep, RefusesATreeThatIsLargerThanTheMergedTreesOfAllProposers) {
  foretoken::v1::StepReport deep, wide;
  for (int node = 0; node < speculation::kMaxTreeNodes; ++node) AddNode(node - 1, *deep.mutable_tree());
  EXPECT_TRUE(CheckStep(deep).ok());
  AddNode(speculation::kMaxTreeNodes - 1, *deep.mutable_tree());
  ExpectInternal(CheckStep(deep), "node 1024 has the depth 1025; expected at most 1024");
  for (int node = 0; node < 32 * speculation::kMaxTreeNodes; ++node) AddNode(-1, *wide.mutable_tree());
  EXPECT_TRUE(CheckStep(wide).ok());
  AddNode(-1, *wide.mutable_tree());
  ExpectInternal(CheckStep(wide), "a tree of 32769 tokens; expected at most 32768");
}

TEST(Append, RefusesATextEndInsideACharacter) {
  Generation generation;
  GenerateResponse response;
  response.set_text("é");
  response.add_token_ids(1);
  response.add_text_ends(2);
  EXPECT_TRUE(Append(response, generation).ok());
  response.set_text("\u009b31m");
  response.set_text_ends(0, 3);
  ExpectInternal(Append(response, generation), "text_ends with 3, which is inside a character");
}

TEST(Append, RefusesTextEndsThatFallAcrossMessages) {
  GenerateResponse response;
  response.add_token_ids(1);
  response.add_text_ends(5);
  Generation generation;
  EXPECT_TRUE(Append(response, generation).ok());
  response.set_text_ends(0, 4);
  ExpectInternal(Append(response, generation), "fall from 5 to 4");
}

TEST(Append, RefusesOutputAfterTheCompletion) {
  GenerateResponse response;
  response.add_token_ids(1);
  response.mutable_completion();
  Generation generation;
  EXPECT_TRUE(Append(response, generation).ok());
  ExpectInternal(Append(response, generation), "after its completion");
}

TEST(CheckComplete, RefusesAMissingCompletionAndASampleThatNobodyAskedFor) {
  Generation generation;
  ExpectInternal(CheckComplete(generation, 1), "without completing sample 0");
  GenerateResponse response;
  response.mutable_completion();
  ASSERT_TRUE(Append(response, generation).ok());
  EXPECT_TRUE(CheckComplete(generation, 1).ok());
  response.set_sample_index(1);
  ASSERT_TRUE(Append(response, generation).ok());
  ExpectInternal(CheckComplete(generation, 1), "sample_index 1; the request asked for samples 0 to 0");
}

}  // namespace
}  // namespace foretoken::client
