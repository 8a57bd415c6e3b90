// SPDX-License-Identifier: Apache-2.0
// The draft proposer step by step, without its thread. If these tests fail, a draft model's guesses come late, at the
// wrong position or not at all, and requests lose speed.
#include "proposer_service/draft/draft_proposer.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cases/tree_columns.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;
using testing::SourcePath;

class DraftProposerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Open() {
    return draft_.Open({.seed = 5, .temperature = 0, .announce = [this] { ++num_announced_; }});
  }
  static void Append(Session& session, std::span<const int32_t> token_ids, int32_t node_budget = 64) {
    session.Append(token_ids);
    session.Want({.node_budget = node_budget});
  }
  TokenTree Propose(Session& session, int32_t node_budget = 16) {
    const ProposalRequest request = {.session = &session, .node_budget = node_budget};
    return draft_.Propose({&request, 1}).front();
  }
  void GrowAll() {
    while (draft_.Step()) continue;
    draft_.forest().CheckIntegrity();
  }

  telemetry::Metrics registry_;
  absl::Time now_ = absl::UnixEpoch();
  absl::Duration pass_time_;
  DraftProposer draft_{testing::LoadDraftModel(), {.max_grown_nodes = 200}, registry_, [this] {
                         return now_ + static_cast<double>(draft_.forest().counters().num_passes) * pass_time_;
                       }};
  DraftMetrics metrics_{registry_};
  int num_announced_ = 0;
  const std::vector<int32_t> prompt_ = {17, 300, 25, 40, 300, 25};
};

// A quarter of the 16 blocks is for trees.
TEST_F(DraftProposerTest, DescribesNoLongerContextsThanItsCacheHolds) {
  telemetry::Metrics metrics;
  const DraftProposer small(testing::LoadDraftModel({.num_blocks = 16}), {}, metrics);
  EXPECT_EQ(small.Describe().max_context_tokens, 12 * 16);
  EXPECT_EQ(draft_.Describe().max_context_tokens, 1024) << "the model's own limit";
}

TEST_F(DraftProposerTest, AnAnswerIsOwedUntilTheRootIsExpanded) {
  const auto session = Open();
  Append(*session, prompt_);
  EXPECT_EQ(session->readiness(), Readiness::kNotYet);
  EXPECT_EQ(Propose(*session).num_nodes(), 0);
  EXPECT_EQ(num_announced_, 0);
  EXPECT_TRUE(draft_.Step());
  EXPECT_EQ(session->readiness(), Readiness::kReady);
  EXPECT_EQ(num_announced_, 1);
  const TokenTree tree = Propose(*session, 2 * DraftForestOptions().max_children);
  EXPECT_EQ(tree.position, prompt_.size());
  EXPECT_EQ(tree.num_nodes(), DraftForestOptions().max_children);
  for (const speculation::TreeNode& node : tree.nodes) EXPECT_EQ(node.proposers, 0);
}

TEST_F(DraftProposerTest, GrowingGoesOnAndBetterTreesAreAnnounced) {
  const auto session = Open();
  Append(*session, prompt_);
  draft_.Step();
  const TokenTree first = Propose(*session, 200);
  GrowAll();
  EXPECT_GT(num_announced_, 2);
  EXPECT_LT(num_announced_, 10) << "about as often as the tree doubles";
  EXPECT_GT(Propose(*session, 200).num_nodes(), first.num_nodes());
  EXPECT_EQ(Propose(*session, 5).num_nodes(), 5);
  EXPECT_FALSE(draft_.Step()) << "growing ends";
}

TEST_F(DraftProposerTest, AnAdvanceIntoTheGrownTreeIsAnsweredAtOnceWithoutAPass) {
  const auto session = Open();
  Append(*session, prompt_);
  GrowAll();
  const TokenTree before = Propose(*session, 40);
  const double num_passes = metrics_.passes.Value();
  const std::vector<int32_t> committed = {before.nodes[0].token_id};
  now_ += absl::Seconds(1);
  Append(*session, committed);
  ASSERT_EQ(session->readiness(), Readiness::kReady);
  EXPECT_TRUE(session->has_grown_tree());
  const TokenTree after = Propose(*session, 40);
  EXPECT_EQ(after.position, before.position + 1);
  const TokenTree expected = speculation::ReRoot(before, committed);
  EXPECT_GE(after.num_nodes(), expected.num_nodes());
  EXPECT_EQ(metrics_.passes.Value(), num_passes);
  EXPECT_EQ(metrics_.hits.Value(), 1);
  EXPECT_EQ(metrics_.answers.Value(), 2);
}

TEST_F(DraftProposerTest, AnAdvanceThatLeavesTheTreeWaitsForAPassAndIsNoHit) {
  const auto session = Open();
  Append(*session, prompt_);
  GrowAll();
  Propose(*session);
  Append(*session, std::vector<int32_t>{4000, 4001});
  EXPECT_EQ(session->readiness(), Readiness::kNotYet);
  EXPECT_FALSE(session->has_grown_tree());
  draft_.Step();
  EXPECT_EQ(session->readiness(), Readiness::kReady);
  EXPECT_EQ(Propose(*session).position, prompt_.size() + 2);
  EXPECT_EQ(metrics_.hits.Value(), 0);
  EXPECT_EQ(metrics_.answers.Value(), 2);
}

// A verifier leaves a proposer that is silent for 5 s, and then the context begins anew.
TEST_F(DraftProposerTest, AContextThatTakesLongIsFirstAnsweredWithAnEmptyTree) {
  pass_time_ = absl::Milliseconds(300);
  const auto session = Open();
  Append(*session, std::vector<int32_t>(1000, 17));  // eight passes
  for (int pass = 1; pass < 8; ++pass) {
    draft_.Step();
    EXPECT_EQ(session->readiness(), pass == 4 ? Readiness::kReady : Readiness::kNotYet) << pass;
    if (pass != 4) continue;
    EXPECT_EQ(num_announced_, 1);
    EXPECT_EQ(Propose(*session).num_nodes(), 0);
    EXPECT_EQ(Propose(*session).position, 1000);
  }
  draft_.Step();
  EXPECT_EQ(session->readiness(), Readiness::kReady);
  EXPECT_EQ(num_announced_, 2);
  EXPECT_GT(Propose(*session).num_nodes(), 0);
  EXPECT_EQ(metrics_.answers.Value(), 1) << "an empty tree is no first tree";
}

TEST_F(DraftProposerTest, AVerifierThatGoesOnIsAnsweredAtItsNewestPosition) {
  pass_time_ = absl::Milliseconds(300);
  const auto session = Open();
  Append(*session, std::vector<int32_t>(1000, 17));
  for (int pass = 1; pass < 4; ++pass) {
    draft_.Step();
    EXPECT_EQ(session->readiness(), Readiness::kNotYet);
    Append(*session, std::vector<int32_t>{4000});
  }
  draft_.Step();
  EXPECT_EQ(session->readiness(), Readiness::kReady) << "the first request is too old";
  EXPECT_EQ(Propose(*session).position, 1003);
  Append(*session, std::vector<int32_t>{4000});
  session->Want({});
  now_ += DraftProposer::kMaxAnswerTime;
  draft_.Step();
  EXPECT_EQ(session->readiness(), Readiness::kNotYet) << "the verifier wants no tree";
}

TEST_F(DraftProposerTest, AVeryPatientVerifierIsAnsweredInTimeToo) {
  pass_time_ = absl::Milliseconds(300);
  const auto session = Open();
  session->Append(prompt_);
  session->Want({.node_budget = 64, .until_next_step = absl::Hours(1), .step = absl::Hours(1)});
  for (int pass = 0; pass < 2; ++pass) draft_.Step();
  EXPECT_EQ(session->readiness(), Readiness::kReady);
  EXPECT_TRUE(draft_.forest().WantsRows(draft_.forest().Find(0))) << "the tree could grow on";
}

TEST_F(DraftProposerTest, AVerifierThatOnlyOpensAndClosesIsRefusedUntilTheNextPass) {
  for (int32_t i = 0; i < DraftProposer::kMaxNewSessions; ++i) Append(*Open(), prompt_);
  const auto refused = Open();
  Append(*refused, prompt_);
  EXPECT_EQ(refused->readiness(), Readiness::kRefused);
  draft_.Step();
  EXPECT_EQ(draft_.forest().num_sessions(), 0);
  EXPECT_EQ(refused->readiness(), Readiness::kRefused);
  const auto session = Open();
  Append(*session, prompt_);
  draft_.Step();
  EXPECT_EQ(session->readiness(), Readiness::kReady);
  EXPECT_EQ(draft_.forest().sessions().begin()->first, 0) << "the forest never had the others";
}

TEST_F(DraftProposerTest, AnIdleSessionCostsNothing) {
  const auto session = Open();
  session->Append(prompt_);
  EXPECT_FALSE(draft_.Step()) << "the tokens wait for a tree request";
  session->Want({});
  GrowAll();
  EXPECT_EQ(metrics_.passes.Value(), 0);
  session->Want({.node_budget = 16});
  draft_.Step();
  draft_.Step();
  const double num_passes = metrics_.passes.Value();
  const int num_announced = num_announced_;
  Append(*session, std::vector<int32_t>{4000, 4001}, 0);
  GrowAll();
  EXPECT_EQ(metrics_.passes.Value(), num_passes);
  EXPECT_EQ(num_announced_, num_announced);
  // After a new request the session answers at its newest position, and its tree grows.
  session->Want({.node_budget = 16});
  EXPECT_EQ(session->readiness(), Readiness::kNotYet);
  draft_.Step();
  EXPECT_EQ(Propose(*session).position, prompt_.size() + 2);
  GrowAll();
  EXPECT_GT(metrics_.passes.Value(), num_passes + 2);
}

TEST_F(DraftProposerTest, NodesBeyondTheSnapshotAnswerWithoutAPass) {
  const auto session = Open();
  Append(*session, prompt_);
  // The proposer publishes twice: after the first pass, and when the tree has doubled.
  for (int pass = 0; pass < 3; ++pass) draft_.Step();
  std::vector<int32_t> committed;
  const GrowingTree& tree = draft_.forest().Find(0).tree;
  const TokenTree snapshot = Propose(*session, speculation::kMaxTreeNodes);
  for (int32_t node = 1; node < tree.num_nodes() && committed.empty(); ++node) {
    if (!tree.node(node).is_expanded) continue;
    std::vector<int32_t> path;
    for (int32_t at = node; at != GrowingTree::kRoot; at = tree.node(at).parent) {
      path.insert(path.begin(), tree.node(at).child.token_id);
    }
    const std::vector<int32_t> matched = speculation::MatchedPath(snapshot, path);
    const bool is_whole = matched.size() == path.size();
    if (!is_whole || !std::ranges::count(testing::Parents(snapshot), matched.back())) committed = path;
  }
  ASSERT_FALSE(committed.empty());
  const double num_passes = metrics_.passes.Value();
  Append(*session, committed);
  EXPECT_EQ(session->readiness(), Readiness::kNotYet) << "the snapshot does not have the node";
  draft_.Step();
  EXPECT_EQ(session->readiness(), Readiness::kReady);
  Propose(*session);
  EXPECT_EQ(metrics_.hits.Value(), 1);
  EXPECT_LE(metrics_.passes.Value(), num_passes + 1) << "the tree grows after the answer";
}

// A verifier that takes 80 ms for a step and waits up to 20 ms for an answer.
class PatientDraftProposerTest : public DraftProposerTest {
 protected:
  PatientDraftProposerTest() {
    pass_time_ = absl::Milliseconds(1);
    const auto session = Open();
    Append(*session, prompt_);
    GrowAll();  // the proposer needs measured passes
  }
  // The number of passes before the answer.
  int NumPasses(Session& session, std::span<const int32_t> token_ids, const TreeRequest& tree_request) {
    session.Append(token_ids);
    session.Want(tree_request);
    int num_passes = 0;
    for (; session.readiness() == Readiness::kNotYet; ++num_passes) EXPECT_TRUE(draft_.Step());
    return num_passes;
  }

  const TreeRequest patient_ = {
      .node_budget = 16, .until_next_step = absl::Milliseconds(20), .step = absl::Milliseconds(80)};
};

TEST_F(PatientDraftProposerTest, AnAnswerWaitsForPassesThatAreWorthTheVerifiersTime) {
  const auto session = Open();
  const std::vector<int32_t> text = tokenizer::Tokenizer::Load(SourcePath("deploy/demo/draft"))
                                        .value()
                                        .Encode("import os\nimport sys\n\n\nclass Reader:\n    def __init__(self")
                                        .value();
  const int num_passes = NumPasses(*session, text, patient_);
  EXPECT_GT(num_passes, 2);
  EXPECT_LE(num_passes, 20);
  TreeRequest tree_request = patient_;
  tree_request.step = absl::ZeroDuration();
  EXPECT_EQ(NumPasses(*session, std::vector<int32_t>{4000, 4001}, tree_request), 1) << "not known";
  tree_request.step = absl::Milliseconds(1);
  EXPECT_EQ(NumPasses(*session, std::vector<int32_t>{4000, 4001}, tree_request), 1) << "a pass takes as long as a step";
  tree_request = patient_;
  tree_request.until_next_step = absl::Milliseconds(3);
  EXPECT_LE(NumPasses(*session, std::vector<int32_t>{4000, 4001}, tree_request), 3);
}

TEST_F(PatientDraftProposerTest, ASmallTreeIsHeldUntilItHasGrown) {
  const auto session = Open();
  Append(*session, prompt_);
  GrowAll();
  Propose(*session);
  // The path to an expanded node whose children are not expanded.
  const GrowingTree& tree = draft_.forest().sessions().begin()->second->tree;
  std::vector<int32_t> committed;
  for (int32_t node = tree.num_nodes() - 1; node > 0 && committed.empty(); --node) {
    if (!tree.node(node).is_expanded || tree.node(node).num_children == 0) continue;
    for (int32_t at = node; at != GrowingTree::kRoot; at = tree.node(at).parent) {
      committed.insert(committed.begin(), tree.node(at).child.token_id);
    }
  }
  ASSERT_FALSE(committed.empty());
  const double num_hits = metrics_.hits.Value();
  EXPECT_GT(NumPasses(*session, committed, patient_), 0);
  Propose(*session);
  EXPECT_EQ(metrics_.hits.Value(), num_hits + 1) << "a tree was there when the request came";
}

TEST_F(PatientDraftProposerTest, SampledChildrenGoOutAfterTheirPass) {
  const auto session = draft_.Open(
      {.rule = kernels::VerificationRule::kRejectionSampling, .seed = 5, .announce = [this] { ++num_announced_; }});
  num_announced_ = 0;
  EXPECT_EQ(NumPasses(*session, prompt_, patient_), 1);
  EXPECT_EQ(num_announced_, 1);
  for (int pass = 2; pass < 7; ++pass) {
    draft_.Step();
    EXPECT_EQ(num_announced_, pass);
  }
}

TEST_F(DraftProposerTest, AnEndedSessionLeavesNothingBehind) {
  for (int i = 0; i < 3; ++i) {
    const auto session = Open();
    Append(*session, prompt_);
    if (i > 0) draft_.Step();
  }
  GrowAll();
  EXPECT_EQ(draft_.forest().num_sessions(), 0);
  draft_.forest().CheckIntegrity();
}

TEST(FullDraftProposer, RefusesSessionsAndGoesOn) {
  telemetry::Metrics registry;
  DraftProposer draft(testing::LoadDraftModel({.num_blocks = 8}), {}, registry);
  int num_announced = 0;
  const auto fits = draft.Open({}), too_long = draft.Open({.announce = [&] { ++num_announced; }});
  for (Session* session : {fits.get(), too_long.get()}) {
    session->Append(std::vector<int32_t>(60, 5));
    session->Want({.node_budget = 16});
  }
  while (draft.Step()) continue;
  EXPECT_EQ(fits->readiness(), Readiness::kReady);
  EXPECT_EQ(too_long->readiness(), Readiness::kRefused);
  EXPECT_EQ(num_announced, 1);
}

// A proposer with room for a context of 96 tokens, and a clock.
class CrowdedDraftProposerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> OpenAndAsk(size_t num_tokens) {
    std::unique_ptr<Session> session = draft_.Open({});
    session->Append(std::vector<int32_t>(num_tokens, 5));
    session->Want({.node_budget = 16});
    return session;
  }
  void GrowAll() {
    while (draft_.Step()) continue;
    draft_.forest().CheckIntegrity();
  }

  telemetry::Metrics registry_;
  absl::Time now_ = absl::UnixEpoch();
  DraftProposer draft_{testing::LoadDraftModel({.num_blocks = 8}), {}, registry_, [this] { return now_; }};
};

// The proposer learns late that a stream is cut off, and its verifier opens the same contexts on another one.
TEST_F(CrowdedDraftProposerTest, ASessionOfWhichNothingIsHeardMakesRoom) {
  const auto cut_off = OpenAndAsk(60);
  GrowAll();
  now_ += DraftProposer::kMaxUnheardTime / 2;
  const auto early = OpenAndAsk(60);
  GrowAll();
  EXPECT_EQ(early->readiness(), Readiness::kRefused);
  now_ += DraftProposer::kMaxUnheardTime / 2;
  const auto late = OpenAndAsk(60);
  GrowAll();
  EXPECT_EQ(late->readiness(), Readiness::kReady);
}

TEST_F(CrowdedDraftProposerTest, ASessionIsHeardOfAlthoughItsUpdateWaitedForALongPass) {
  const auto first = OpenAndAsk(40), second = OpenAndAsk(40);
  GrowAll();
  now_ += 2 * DraftProposer::kMaxUnheardTime;
  const auto crowd = OpenAndAsk(60);
  for (Session* session : {first.get(), second.get()}) {
    session->Append(std::vector<int32_t>{4000});
    session->Want({.node_budget = 16});
  }
  GrowAll();
  EXPECT_EQ(crowd->readiness(), Readiness::kRefused);
  EXPECT_EQ(first->readiness(), Readiness::kReady);
  EXPECT_EQ(second->readiness(), Readiness::kReady);
}

}  // namespace
}  // namespace foretoken::proposer
