// SPDX-License-Identifier: Apache-2.0
// The batches of a step. If this test fails, the model computes rows of other tokens than were planned, or a sample is
// drawn from another sample's tree.
#include "verifier_service/engine/tree_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/make_backend.h"
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

  const std::unique_ptr<kernels::Backend> backend_ = kernels::MakeBackend({.num_threads = 1}).backend;
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

// The children that one proposer drew at a node of a batch's tree.
struct Group {
  int32_t parent = 0;
  std::vector<int32_t> children;
  std::vector<int32_t> draft_token_ids;
};

void ExpectGroups(std::span<const kernels::DrawnChildren> drawn, const std::vector<Group>& expected) {
  ASSERT_EQ(drawn.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(drawn[i].parent, expected[i].parent);
    EXPECT_THAT(drawn[i].children, ElementsAreArray(expected[i].children));
    EXPECT_THAT(drawn[i].draft_token_ids, ElementsAreArray(expected[i].draft_token_ids));
  }
}

// A sequence of a plan, and the tree that the batch must have for it.
struct Planned {
  PlannedSequence sequence;
  std::vector<int32_t> token_ids;
  std::vector<int32_t> parents;
  int32_t num_rows = 0;
  std::vector<const uint32_t*> masks;
  std::vector<Group> drawn;
};

void ExpectTree(const TreeBatch& batch, const kernels::TreeToAccept& tree, const Planned& planned) {
  EXPECT_THAT(tree.token_ids, ElementsAreArray(planned.token_ids));
  EXPECT_THAT(tree.parents, ElementsAreArray(planned.parents));
  EXPECT_THAT(tree.masks, ElementsAreArray(planned.masks));
  ExpectGroups(tree.drawn, planned.drawn);
  EXPECT_EQ(tree.context_len, planned.sequence.sequence->size());
  ASSERT_EQ(tree.num_rows, planned.num_rows);
  ASSERT_LE(tree.first_logit_row + tree.num_rows, batch.forward.logit_rows.size());
  for (int32_t node = 0; node < planned.num_rows; ++node) {
    const int32_t row = batch.forward.logit_rows[tree.first_logit_row + node];
    EXPECT_EQ(batch.forward.token_ids[row], planned.token_ids[node]) << "the row of node " << node;
  }
}

// One sequence of every kind. No two trees have a token, a mask or a number of nodes in common.
class MixedTreeBatchTest : public TreeBatchTest {
 protected:
  Planned Keyed() {
    return {.sequence = {.sequence = &Add({.prompt = {1, 2, 3}}, 2),
                         .num_chain = 1,
                         .tree = TreeOf({{.token_id = 10},
                                         {.token_id = 11},
                                         {.token_id = 12, .parent = 1},
                                         {.token_id = 13, .parent = 2}})},
            .token_ids = {3, 10, 11, 12, 13},
            .parents = {-1, 0, 0, 2, 3},
            .num_rows = 5};
  }
  // Of the drawn nodes 20 to 24 only 20 has a row.
  Planned Tested() {
    Planned planned = {.sequence = {.sequence = &Add({.prompt = {4, 5}, .verification = kRejectionSampling}, 1),
                                    .num_chain = 1,
                                    .tree = TreeOf({{.token_id = 20}})},
                       .token_ids = {5, 20, 21, 22, 23, 24},
                       .parents = {-1, 0, 0, 1, 1, 1},
                       .num_rows = 2,
                       .drawn = {{0, {1, 2}, {20, 21, 29}}, {1, {3, 4, 5}, {22, 23, 24}}}};
    planned.sequence.tree.guess = &tested_guess_;
    planned.sequence.tree.row_node_idx = {0};
    return planned;
  }
  // The mask of the first generated token differs from the mask of later ones.
  Planned Masked() {
    Sequence& sequence = Add({.prompt = {6}}, 0);
    const auto [early, late] = Constrain(sequence);
    return {.sequence = {.sequence = &sequence,
                         .num_chain = 1,
                         .tree = TreeOf({{.token_id = 30}, {.token_id = 31, .parent = 0}})},
            .token_ids = {6, 30, 31},
            .parents = {-1, 0, 1},
            .num_rows = 3,
            .masks = {early, late, late}};
  }
  // The second drawn node, 41, has a row. Nodes without a row draw nothing, so they have no mask.
  Planned TestedAndMasked() {
    Sequence& sequence = Add({.prompt = {7, 8, 9}, .verification = kRejectionSampling}, 1);
    const auto [early, late] = Constrain(sequence);
    Planned planned = {.sequence = {.sequence = &sequence, .num_chain = 2, .tree = TreeOf({{.token_id = 41}})},
                       .token_ids = {9, 41, 40, 42},
                       .parents = {-1, 0, 0, 1},
                       .num_rows = 2,
                       .masks = {early, late, nullptr, nullptr},
                       .drawn = {{0, {2, 1}, {40, 41}}, {1, {3}, {42}}}};
    planned.sequence.tree.guess = &masked_guess_;
    planned.sequence.tree.row_node_idx = {1};
    return planned;
  }
  // A piece of a prompt, which has rows of logits and no tree.
  Planned ScoredPiece() {
    return {.sequence = {.sequence = &Add({.prompt = {101, 102, 103, 104}, .output = {.num_prompt_logprobs = 1}}, 0),
                         .num_chain = 2}};
  }

 private:
  static constexpr auto kRejectionSampling = kernels::VerificationRule::kRejectionSampling;

  static std::shared_ptr<const speculation::DraftDistribution> DraftOf(std::vector<int32_t> token_ids) {
    const std::vector<float> probs(token_ids.size(), .25f);
    return std::make_shared<speculation::DraftDistribution>(
        speculation::DraftDistribution{.token_ids = std::move(token_ids), .probs = probs});
  }
  // Gives the sequence one mask for its first generated token and another for later ones.
  std::pair<const uint32_t*, const uint32_t*> Constrain(Sequence& sequence) {
    DrawMasks& masks = sequence.active->masks;
    masks = DrawMasks({.min_tokens = 1, .early = {1}, .late = {3}}, drawable_, *backend_);
    return {masks.At(0), masks.At(1)};
  }

  const speculation::TokenTree tested_guess_ = {
      .position = 2,
      .nodes = {{.token_id = 20},
                {.token_id = 21},
                {.token_id = 22, .parent = 0},
                {.token_id = 23, .parent = 0},
                {.token_id = 24, .parent = 0}},
      .sampled = {{.parent = -1, .children = {0, 1}, .draft = DraftOf({20, 21, 29})},
                  {.parent = 0, .children = {2, 3, 4}, .draft = DraftOf({22, 23, 24})}}};
  const speculation::TokenTree masked_guess_ = {
      .position = 3,
      .nodes = {{.token_id = 40}, {.token_id = 41}, {.token_id = 42, .parent = 1}},
      .sampled = {{.parent = -1, .children = {0, 1}, .draft = DraftOf({40, 41})},
                  {.parent = 1, .children = {2}, .draft = DraftOf({42})}}};
  const DrawableIds drawable_{tokenizer::Vocabulary({}), 0, *backend_};
};

// All trees share the batch's vectors. A wrong offset of one tree shows in the spans of another.
TEST_F(MixedTreeBatchTest, EveryTreeHasItsOwnNodesMasksAndDrawnChildrenInAnyOrder) {
  const std::vector<Planned> kinds = {Keyed(), Tested(), Masked(), TestedAndMasked(), ScoredPiece()};
  constexpr size_t kScoredPiece = 4;
  std::vector<size_t> order = {0, 1, 2, 3, 4};
  do {
    SCOPED_TRACE(::testing::PrintToString(order));
    std::vector<PlannedSequence> plan;
    std::vector<size_t> planned_idx;  // of the sequences with a tree
    for (const size_t kind : order) {
      if (kind != kScoredPiece) planned_idx.push_back(plan.size());
      plan.push_back(kinds[kind].sequence);
    }
    const TreeBatch batch = BuildTreeBatch(plan);
    ASSERT_EQ(batch.planned_idx, planned_idx);
    ASSERT_EQ(batch.trees.size(), planned_idx.size());
    for (size_t i = 0; i < planned_idx.size(); ++i) ExpectTree(batch, batch.trees[i], kinds[order[planned_idx[i]]]);
    ASSERT_FALSE(HasFailure());
  } while (std::ranges::next_permutation(order).found);
}

}  // namespace
}  // namespace foretoken::verifier
