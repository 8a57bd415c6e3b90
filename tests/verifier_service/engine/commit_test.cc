// SPDX-License-Identifier: Apache-2.0
// The one place that changes a sequence. If this test fails, a client gets tokens that the model did not say, tokens
// behind the end of its output, or the next step reads the K/V of other tokens.
#include "verifier_service/engine/commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verifier_service/engine/lone_sequences.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kBlockSize = kernels::kKvBlockSize;

class CommitTest : public ::testing::Test {
 protected:
  // A prompt of five tokens whose K/V is stored, but for the root's.
  std::unique_ptr<Sequence> Decoding(StopConditions stop) {
    auto sequence = sequences_.Make({.prompt = {1, 2, 3, 4, 5}, .stop = std::move(stop)});
    sequence->blocks = {7};
    sequence->num_computed = 4;
    return sequence;
  }
  // A chain of two guesses, 10 and 11, with the slots 100 and 101.
  static PlannedTree Chain() {
    PlannedTree tree;
    tree.rows.nodes = {{.token_id = 10}, {.token_id = 11, .parent = 0}};
    tree.slots.slots = {100, 101};
    return tree;
  }
  // The target draws 10 at the root, 11 at the first node and 12 at the second.
  static kernels::AcceptedPath WholeChain() { return {.token_ids = {10, 11, 12}, .node_idx = {0, 1, 2}}; }

  LoneSequences sequences_;
  std::vector<kernels::KvMove> moves_;
};

TEST_F(CommitTest, AppendsTheAcceptedNodesAndTheBonusToken) {
  const auto sequence = Decoding({.max_tokens = 8});
  kernels::AcceptedPath path = WholeChain();
  EXPECT_EQ(CommitPath(*sequence, Chain(), path, &moves_), 3);
  EXPECT_THAT(sequence->token_ids, ElementsAre(1, 2, 3, 4, 5, 10, 11, 12));
  EXPECT_THAT(sequence->output.token_ids, ElementsAre(10, 11, 12));
  EXPECT_FALSE(sequence->is_finished);
  EXPECT_THAT(sequence->speculation_counts.accepted_lengths, ElementsAre(0, 0, 1));
}

TEST_F(CommitTest, MovesTheKeysOfAcceptedNodesBehindTheContext) {
  const auto sequence = Decoding({.max_tokens = 8});
  kernels::AcceptedPath path = WholeChain();
  CommitPath(*sequence, Chain(), path, &moves_);
  ASSERT_EQ(moves_.size(), 2);
  EXPECT_EQ(moves_[0].from_slot, 100);
  EXPECT_EQ(moves_[0].to_slot, 7 * kBlockSize + 5);
  EXPECT_EQ(moves_[1].from_slot, 101);
  EXPECT_EQ(moves_[1].to_slot, 7 * kBlockSize + 6);
  EXPECT_EQ(sequence->num_computed, 7);  // all but the new root's
}

TEST_F(CommitTest, StopsAtTheMostTokens) {
  const auto sequence = Decoding({.max_tokens = 2});
  kernels::AcceptedPath path = WholeChain();
  EXPECT_EQ(CommitPath(*sequence, Chain(), path, &moves_), 2);
  EXPECT_THAT(sequence->output.token_ids, ElementsAre(10, 11));
  ASSERT_TRUE(sequence->output.completion.has_value());
  EXPECT_EQ(sequence->output.completion->finish_reason, FinishReason::kLength);
}

TEST_F(CommitTest, StopsAtAStopTokenAndNamesIt) {
  const auto sequence = Decoding({.max_tokens = 8, .stop_token_ids = {10}});
  kernels::AcceptedPath path = WholeChain();
  EXPECT_EQ(CommitPath(*sequence, Chain(), path, &moves_), 1);
  ASSERT_TRUE(sequence->output.completion.has_value());
  EXPECT_EQ(sequence->output.completion->finish_reason, FinishReason::kStop);
  EXPECT_EQ(sequence->output.completion->matched_stop_token_id, 10);
  EXPECT_THAT(sequence->output.text, IsEmpty());  // a token that ends the sample has no text
  EXPECT_THAT(moves_, IsEmpty());
}

TEST_F(CommitTest, CountsWhoseNodesWereVerifiedAndAccepted) {
  const auto sequence = Decoding({.max_tokens = 8});
  PlannedTree tree = Chain();
  for (speculation::TreeNode& node : tree.rows.nodes) node.proposers = 1;  // of the prediction, the only proposer here
  kernels::AcceptedPath path = {.token_ids = {10, 13}, .node_idx = {0, 1}};
  CommitPath(*sequence, tree, path, &moves_);
  EXPECT_EQ(sequence->proposer_counts[0].num_proposed, 2);
  EXPECT_EQ(sequence->proposer_counts[0].num_accepted, 1);
}

TEST_F(CommitTest, AChunkOfAPromptEmitsNothing) {
  const auto sequence = sequences_.Make({.prompt = {1, 2, 3, 4, 5}, .stop = {.max_tokens = 8}});
  CommitChunk(*sequence, 3);
  EXPECT_EQ(sequence->num_computed, 3);
  EXPECT_THAT(sequence->output.token_ids, IsEmpty());
}

}  // namespace
}  // namespace foretoken::verifier
