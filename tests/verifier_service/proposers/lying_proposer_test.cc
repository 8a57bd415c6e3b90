// SPDX-License-Identifier: Apache-2.0
// The pool with proposers that send invalid trees. If this test fails, a lying proposer reaches the engine, stays in
// use, or cannot return after it sends valid trees again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/fakes/lies.h"
#include "tests/testing/fakes/scripted_proposer.h"
#include "tests/verifier_service/proposers/pool_speaker.h"
#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {
namespace {

using ::testing::IsEmpty;
using testing::Lie;
using testing::Lies;
using testing::ScriptedProposer;

class LyingProposer : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingProposer, IsDroppedCountedAndDisconnectedUntilItSendsValidTrees) {
  ScriptedProposer proposer({});
  ProposerPoolOptions options = PoolOptions();
  options.max_bad_trees_in_a_row = 3;
  options.max_tree_nodes = 64;
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  proposer.SetTree([&](const ScriptedProposer::Mirror& mirror) {
    v1::TokenTree tree = ScriptedProposer::CountingTree(mirror);
    tree.set_session_id(mirror.session_id);
    tree.set_position(mirror.token_ids.size());
    GetParam().tell(tree);
    return tree;
  });
  Speaker speaker(*pool, 1);
  EXPECT_TRUE(Eventually([&] {
    speaker.Step();
    EXPECT_THAT(pool->TakeProposals(absl::Milliseconds(5)), IsEmpty());
    return pool->GetCounters()[0].num_breaks >= 1;
  }));
  EXPECT_GE(pool->GetCounters()[0].num_bad_trees, 3);
  EXPECT_EQ(pool->GetCounters()[0].num_trees, 0);
  proposer.SetTree(ScriptedProposer::CountingTree);
  EXPECT_TRUE(speaker.Regains());
}

INSTANTIATE_TEST_SUITE_P(Kinds, LyingProposer, ::testing::ValuesIn(Lies(kNumTokens)),
                         [](const auto& info) { return info.param.name; });

TEST(ProposerPool, ValidSampledTreesAreTaken) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  proposer.SetTree([&](const ScriptedProposer::Mirror& mirror) {
    v1::TokenTree tree = ScriptedProposer::CountingTree(mirror);
    testing::Sample(.5f, tree);
    return tree;
  });
  Speaker speaker(*pool, 1);
  EXPECT_TRUE(speaker.Regains());
  EXPECT_EQ(pool->GetCounters()[0].num_bad_trees, 0);
}

// A proposer newer than this build sends an unknown draw method. Under the keyed draw any tree is safe. Under rejection
// sampling the verifier cannot test such a tree.
TEST(ProposerPool, TreesOfAnUnknownDrawMethodAreGuessesUnderTheKeyedDrawOnly) {
  ScriptedProposer proposer({});
  ProposerPoolOptions options = PoolOptions();
  options.max_bad_trees_in_a_row = 3;
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  proposer.SetTree([&](const ScriptedProposer::Mirror& mirror) {
    v1::TokenTree tree = ScriptedProposer::CountingTree(mirror);
    tree.set_draw_method(static_cast<v1::DrawMethod>(99));
    tree.add_draft_probs();
    return tree;
  });
  Speaker speaker(*pool, 1);
  EXPECT_TRUE(speaker.Regains());
  EXPECT_EQ(pool->GetCounters()[0].num_bad_trees, 0);
  pool->Close(1);
  pool->Open({.sequence_id = 2,
              .token_ids = std::vector<int32_t>{1, 2},
              .rule = kernels::VerificationRule::kRejectionSampling});
  EXPECT_TRUE(Eventually([&, token_id = int32_t{3}]() mutable {
    pool->Advance(2, std::vector<int32_t>{token_id++}, {.node_budget = 4, .proposers = ~0u});
    pool->Flush({});
    EXPECT_THAT(pool->TakeProposals(absl::Milliseconds(20)), IsEmpty());
    return pool->GetCounters()[0].num_bad_trees >= 3;
  }));
}

TEST(ProposerPool, AResponseAboveTheLimitBreaksOnlyTheStream) {
  ScriptedProposer proposer({});
  ProposerPoolOptions options = PoolOptions();
  options.max_message_bytes = 4096;
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  ASSERT_TRUE(speaker.Regains());
  v1::ProposeResponse huge;
  for (uint64_t i = 0; i < 10'000; ++i) huge.add_unknown_session_ids(1000 + i);
  proposer.Push(huge);
  EXPECT_TRUE(Eventually([&] { return pool->GetCounters()[0].num_breaks == 1; }));
  EXPECT_TRUE(speaker.Regains());
}

}  // namespace
}  // namespace foretoken::verifier
