// SPDX-License-Identifier: Apache-2.0
// The batches of a step. If this test fails, the model computes rows of other tokens than were planned, or a sample is
// drawn from another sample's tree.
#include "verifier_service/engine/tree_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/verifier_service/engine/lone_sequences.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

class TreeBatchTest : public ::testing::Test {
 protected:
  Sequence& Add(GenerationRequest request, int32_t num_computed) {
    Sequence& sequence = *made_.emplace_back(sequences_.Make(std::move(request)));
    sequence.blocks = {static_cast<int32_t>(made_.size())};
    sequence.num_computed = num_computed;
    return sequence;
  }
  static PlannedTree TreeOf(std::vector<speculation::TreeNode> nodes) {
    PlannedTree tree;
    for (size_t i = 0; i < nodes.size(); ++i) tree.slots.slots.push_back(static_cast<int32_t>(1000 + i));
    tree.rows.nodes = std::move(nodes);
    return tree;
  }

  LoneSequences sequences_;
  std::vector<std::unique_ptr<Sequence>> made_;
};

TEST_F(TreeBatchTest, ARootStandsAboveItsTree) {
  Sequence& sequence = Add({.prompt = {1, 2, 3}}, 2);
  const PlannedSequence planned = {.sequence = &sequence,
                                   .num_chain = 1,
                                   .tree = TreeOf({{.token_id = 10}, {.token_id = 11}, {.token_id = 12, .parent = 1}})};
  const TreeBatch batch = BuildTreeBatch(std::span(&planned, 1));
  EXPECT_THAT(batch.forward.token_ids, ElementsAre(3, 10, 11, 12));
  EXPECT_THAT(batch.forward.positions, ElementsAre(2, 3, 3, 4));
  EXPECT_THAT(batch.forward.logit_rows, ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(batch.trees.size(), 1);
  EXPECT_THAT(batch.trees[0].token_ids, ElementsAre(3, 10, 11, 12));
  EXPECT_THAT(batch.trees[0].parents, ElementsAre(-1, 0, 0, 2));
  EXPECT_EQ(batch.trees[0].context_len, 3);
  EXPECT_EQ(batch.trees[0].num_rows, 4);
  EXPECT_THAT(batch.trees[0].masks, IsEmpty());
}

TEST_F(TreeBatchTest, AChunkDrawsOnlyWhereItEndsThePrompt) {
  Sequence& begun = Add({.prompt = {1, 2, 3, 4}}, 0);
  Sequence& ended = Add({.prompt = {5, 6, 7, 8}}, 2);
  const std::vector<PlannedSequence> plan = {{.sequence = &begun, .num_chain = 2},
                                             {.sequence = &ended, .num_chain = 2}};
  const TreeBatch batch = BuildTreeBatch(plan);
  EXPECT_THAT(batch.forward.token_ids, ElementsAre(1, 2, 7, 8));
  EXPECT_THAT(batch.forward.logit_rows, ElementsAre(3));
  EXPECT_THAT(batch.planned_idx, ElementsAre(1));
}

TEST_F(TreeBatchTest, AScoredPromptHasARowOfLogitsForEachTokenThatIsKnown) {
  Sequence& sequence = Add({.prompt = {1, 2, 3, 4}, .output = {.num_prompt_logprobs = 2}}, 0);
  const std::vector<PlannedSequence> plan = {{.sequence = &sequence, .num_chain = 3}};
  const TreeBatch batch = BuildTreeBatch(plan);
  ASSERT_EQ(batch.prompt_scores.size(), 1);
  EXPECT_THAT(batch.prompt_scores[0].token_ids, ElementsAre(2, 3, 4));
  EXPECT_EQ(batch.prompt_scores[0].num_top, 2);
  EXPECT_THAT(batch.forward.logit_rows, ElementsAre(0, 1, 2));
}

// The vectors behind the trees grow while trees are added: each tree must still find its own nodes.
TEST_F(TreeBatchTest, EveryTreeKeepsItsNodesInALargeBatch) {
  std::vector<PlannedSequence> plan;
  for (int32_t i = 0; i < 300; ++i) {
    plan.push_back({.sequence = &Add({.prompt = {i, 2 * i}}, 1),
                    .num_chain = 1,
                    .tree = TreeOf(std::vector<speculation::TreeNode>(i % 7, {.token_id = 5000 + i}))});
  }
  TreeBatch built = BuildTreeBatch(plan);
  const TreeBatch batch = std::move(built);
  ASSERT_EQ(batch.trees.size(), plan.size());
  for (int32_t i = 0; i < 300; ++i) {
    std::vector<int32_t> expected(1 + i % 7, 5000 + i);
    expected[0] = 2 * i;
    EXPECT_THAT(batch.trees[i].token_ids, ElementsAreArray(expected)) << i;
  }
}

}  // namespace
}  // namespace foretoken::verifier
