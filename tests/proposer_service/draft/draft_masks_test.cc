// SPDX-License-Identifier: Apache-2.0
// The draft proposer under masks of allowed tokens. If these tests fail, a draft model guesses tokens that cannot come
// next, or rejection sampling is no longer exact under a mask.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/draft/draft_proposer.h"
#include "tests/reference/sampling.h"
#include "tests/testing/cases/allow_ids.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::proposer {
namespace {

using kernels::VerificationRule;
using speculation::AllowedTokens;
using speculation::kRootParent;
using speculation::TokenTree;
using testing::AllowIds;
using ::testing::IsEmpty;

const SessionIntroduction kGreedyMasked = {.seed = 1, .temperature = 0};
const SessionIntroduction kDrawnMasked = {.seed = 2, .sample_index = 3, .temperature = 0.8f, .top_p = 0.95f};
const SessionIntroduction kSampledMasked = {.rule = VerificationRule::kRejectionSampling, .seed = 3};
const std::vector<int32_t> kPrompt = {17, 300, 25, 40, 300, 25};
const std::vector<int32_t> kFewIds = {5, 17, 25, 300, 2000};

std::vector<int32_t> RootTokens(const TokenTree& tree) {
  std::vector<int32_t> tokens;
  for (const speculation::TreeNode& node : tree.nodes) {
    if (node.parent == kRootParent) tokens.push_back(node.token_id);
  }
  return tokens;
}

// A child of the root: its token and its chance.
using Guess = std::pair<int32_t, float>;

std::vector<Guess> RootGuesses(const DraftForest::Session& session) {
  std::vector<Guess> guesses;
  for (const GrowingTree::Node& node : session.tree.Children(GrowingTree::kRoot)) {
    guesses.emplace_back(node.child.token_id, node.child.chance);
  }
  return guesses;
}

// The mask of all ids of the model but one.
AllowedTokens AllBut(int32_t token_id) {
  std::string bytes(512, '\xFF');
  bytes[token_id / 8] ^= static_cast<char>(1 << token_id % 8);
  return AllowedTokens(bytes);
}

class DraftMasks : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Open(const SessionIntroduction& introduction) { return draft_.Open(introduction); }
  static void Ask(Session& session, const std::vector<int32_t>& token_ids, const AllowedTokens& allowed) {
    session.Append(token_ids);
    session.Want({.node_budget = 64, .allowed = allowed});
  }
  TokenTree Propose(Session& session, int32_t node_budget = 24) {
    const ProposalRequest request = {.session = &session, .node_budget = node_budget};
    return draft_.Propose({&request, 1}).front();
  }
  void GrowAll() {
    while (draft_.Step()) draft_.forest().CheckIntegrity();
  }
  TokenTree Grown(Session& session, const std::vector<int32_t>& token_ids, const AllowedTokens& allowed) {
    Ask(session, token_ids, allowed);
    GrowAll();
    EXPECT_EQ(session.readiness(), Readiness::kReady);
    return Propose(session);
  }
  // The tree of a session whose root is new when the mask comes.
  TokenTree GrownFresh(const SessionIntroduction& introduction, const std::vector<int32_t>& context,
                       const AllowedTokens& allowed) {
    return Grown(*Open(introduction), context, allowed);
  }
  // The inputs of the reference for the token after the context.
  static reference::DrawInputs InputsAfter(const std::vector<int32_t>& context,
                                           const SessionIntroduction& introduction) {
    const model::RunnableModel plain = testing::LoadDraftModel();
    const std::vector<int32_t> blocks = {0, 1, 2, 3};
    model::ForwardBatch batch;
    batch.logit_rows = {model::AppendSegment({.block_table = blocks, .chain = context}, &batch)};
    const kernels::ConstTensorView logits = plain.transformer->Forward(batch, plain.kv);
    reference::DrawInputs inputs = {.t = static_cast<uint32_t>(context.size())};
    inputs.logits.assign(logits.as<float>(), logits.as<float>() + plain.num_tokens());
    inputs.sampling = {.temperature = introduction.temperature,
                       .top_p = introduction.top_p,
                       .seed = introduction.seed,
                       .sample_index = introduction.sample_index};
    return inputs;
  }

  telemetry::Metrics registry_;
  DraftProposer draft_{testing::LoadDraftModel(), {.max_grown_nodes = 60, .learns_chances = false}, registry_};
};

TEST_F(DraftMasks, TheFirstGuessIsTheDrawFromTheMaskedRow) {
  for (const SessionIntroduction& introduction : {kGreedyMasked, kDrawnMasked}) {
    const int32_t favourite = RootTokens(GrownFresh(introduction, kPrompt, {})).front();
    const TokenTree tree = GrownFresh(introduction, kPrompt, AllBut(favourite));
    reference::DrawInputs inputs = InputsAfter(kPrompt, introduction);
    EXPECT_EQ(favourite, reference::DrawToken(inputs));
    inputs.mask = AllBut(favourite).Words(static_cast<int32_t>(inputs.logits.size()));
    EXPECT_EQ(RootTokens(tree).front(), reference::DrawToken(inputs));
    EXPECT_NE(RootTokens(tree).front(), favourite);
  }
}

TEST_F(DraftMasks, OnlyTheRootIsRestricted) {
  const TokenTree tree = GrownFresh(kDrawnMasked, kPrompt, AllowIds(kFewIds));
  for (const int32_t token_id : RootTokens(tree)) EXPECT_TRUE(AllowIds(kFewIds).Allows(token_id));
  EXPECT_TRUE(std::ranges::any_of(tree.nodes, [](const speculation::TreeNode& node) {
    return node.parent != kRootParent && !AllowIds(kFewIds).Allows(node.token_id);
  }));
}

// The root is a node of the tree before, and its children were chosen without the mask.
TEST_F(DraftMasks, ARootThatWasExpandedBeforeItsMaskGetsTheSameChildrenAsAFreshOne) {
  for (const SessionIntroduction& introduction : {kGreedyMasked, kDrawnMasked, kSampledMasked}) {
    const auto session = Open(introduction);
    const int32_t committed = Grown(*session, kPrompt, {}).nodes[0].token_id;
    std::vector<int32_t> context = kPrompt;
    context.push_back(committed);
    std::vector<int32_t> unsent = {committed};
    for (const AllowedTokens& allowed : {AllBut(300), AllowIds(kFewIds), AllowedTokens()}) {
      const TokenTree tree = Grown(*session, std::exchange(unsent, {}), allowed);
      const std::vector<Guess> guesses = RootGuesses(*draft_.forest().sessions().begin()->second);
      const auto other = Open(introduction);
      const TokenTree fresh = Grown(*other, context, allowed);
      EXPECT_EQ(guesses, RootGuesses(*draft_.forest().sessions().rbegin()->second)) << "bit for bit";
      ASSERT_EQ(tree.sampled.size() > 0, introduction.rule == VerificationRule::kRejectionSampling);
      if (tree.sampled.empty()) continue;
      EXPECT_EQ(tree.sampled[0].parent, kRootParent);
      EXPECT_EQ(tree.sampled[0].draft->token_ids, fresh.sampled[0].draft->token_ids);
      EXPECT_EQ(tree.sampled[0].draft->probs, fresh.sampled[0].draft->probs);
    }
  }
}

TEST_F(DraftMasks, GuessesThatMayComeGoOutAtOnceAndSamplesOnlyAfterANewDraw) {
  for (const SessionIntroduction& introduction : {kDrawnMasked, kSampledMasked}) {
    const auto session = Open(introduction);
    const int32_t committed = Grown(*session, kPrompt, {}).nodes[0].token_id;
    session->Append(std::vector<int32_t>{committed});
    const std::vector<int32_t> known = RootTokens(Propose(*session));
    ASSERT_GT(known.size(), 1);
    Ask(*session, {}, AllBut(known.front()));
    if (introduction.rule == VerificationRule::kRejectionSampling) {
      EXPECT_EQ(session->readiness(), Readiness::kNotYet) << "to keep some samples would bias them";
      EXPECT_THAT(Propose(*session).nodes, IsEmpty());
      draft_.Step();
    }
    EXPECT_EQ(session->readiness(), Readiness::kReady);
    const std::vector<int32_t> now = RootTokens(Propose(*session));
    EXPECT_FALSE(now.empty());
    EXPECT_THAT(now, ::testing::Not(::testing::Contains(known.front())));
  }
}

TEST_F(DraftMasks, AMaskThatAllowsNothingIsAnsweredWithAnEmptyTree) {
  for (const SessionIntroduction& introduction : {kGreedyMasked, kDrawnMasked, kSampledMasked}) {
    const auto session = Open(introduction);
    EXPECT_THAT(Grown(*session, kPrompt, AllowIds({})).nodes, IsEmpty());
    const int32_t committed = Grown(*session, {}, {}).nodes[0].token_id;
    EXPECT_THAT(Grown(*session, {committed}, AllowIds({})).nodes, IsEmpty());
    EXPECT_GT(Grown(*session, {17}, {}).num_nodes(), 0) << "the session goes on";
  }
}

TEST_F(DraftMasks, AMaskOfAllTokensChangesNothingAndLengthsDoNotMatter) {
  for (const SessionIntroduction& introduction : {kGreedyMasked, kDrawnMasked, kSampledMasked}) {
    const TokenTree free = GrownFresh(introduction, kPrompt, {});
    for (const size_t num_bytes : {512, 513, 4096}) {
      EXPECT_EQ(GrownFresh(introduction, kPrompt, testing::AllowAll(num_bytes)).nodes, free.nodes);
    }
    for (const int32_t token_id : RootTokens(GrownFresh(introduction, kPrompt, testing::AllowAll(1)))) {
      EXPECT_LT(token_id, 8) << "missing bits are not allowed";
    }
  }
}

TEST_F(DraftMasks, TheDistributionOfSampledChildrenIsTheRenormalisedOne) {
  for (const bool is_fresh : {true, false}) {
    const auto session = Open(kSampledMasked);
    std::vector<int32_t> context = kPrompt, last = kPrompt;
    if (!is_fresh) {
      last = {Grown(*session, kPrompt, {}).nodes[0].token_id};
      context.push_back(last[0]);
    }
    const TokenTree tree = Grown(*session, last, AllowIds(kFewIds));
    ASSERT_FALSE(tree.sampled.empty());
    ASSERT_EQ(tree.sampled[0].parent, kRootParent);
    const speculation::DraftDistribution& draft = *tree.sampled[0].draft;
    EXPECT_EQ(draft.token_ids, kFewIds) << "all of them, ascending";
    EXPECT_NEAR(std::accumulate(draft.probs.begin(), draft.probs.end(), 0.0), 1, 1e-5);
    const std::vector<double> free = reference::FilteredDistribution(InputsAfter(context, kSampledMasked));
    double total = 0;
    for (const int32_t id : kFewIds) total += free[id];
    for (size_t i = 0; i < kFewIds.size(); ++i) {
      EXPECT_NEAR(draft.probs[i], free[kFewIds[i]] / total, 1e-4 * free[kFewIds[i]] / total) << kFewIds[i];
    }
    const std::set<int32_t> allowed(kFewIds.begin(), kFewIds.end());
    for (const int32_t child : tree.sampled[0].children) EXPECT_TRUE(allowed.contains(tree.nodes[child].token_id));
  }
}

// The forest chooses the root's first child with the frequency that the sent distribution states.
TEST_F(DraftMasks, SampledChildrenFollowTheMaskedDistribution) {
  constexpr int kNumTrials = 300;
  std::map<int32_t, int> counts;
  speculation::DraftDistribution draft;
  for (int seed = 0; seed < kNumTrials; ++seed) {
    const auto session = Open({.rule = VerificationRule::kRejectionSampling, .seed = static_cast<uint64_t>(seed)});
    Ask(*session, kPrompt, AllowIds(kFewIds));
    draft_.Step();
    const TokenTree tree = Propose(*session, 3);
    ASSERT_EQ(tree.sampled.size(), 1);
    ++counts[tree.nodes[tree.sampled[0].children[0]].token_id];
    draft = *tree.sampled[0].draft;
  }
  for (size_t i = 0; i < draft.probs.size(); ++i) {
    const double prob = draft.probs[i], slack = 6 * std::sqrt(prob * (1 - prob) / kNumTrials) + 1e-9;
    EXPECT_NEAR(double{1} * counts[draft.token_ids[i]] / kNumTrials, prob, slack) << draft.token_ids[i];
  }
}

}  // namespace
}  // namespace foretoken::proposer
