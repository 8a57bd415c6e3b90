// SPDX-License-Identifier: Apache-2.0
// Growing trees of a drafter that reads hidden states. Features may come late, in pieces or from a later position, and
// a tree that grew without them must become the tree that grows with them. If these tests fail, a head drafts on its
// own predictions for too long, or the verifier's features go to the wrong rows.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/draft/draft_forest.h"
#include "proposer_service/features/eagle3.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;
using testing::kTinyHidden;

constexpr DraftForestOptions kForestOptions = {
    .num_children = 6, .max_children = 6, .max_grown_nodes = 60, .min_path_chance = 0, .learns_chances = false};
const SessionIntroduction kGreedyFeatures = {.seed = 1, .temperature = 0};
const SessionIntroduction kDrawnFeatures = {.seed = 2, .sample_index = 3, .temperature = 0.8f, .top_p = 0.95f};
const SessionIntroduction kSampledFeatures = {
    .rule = kernels::VerificationRule::kRejectionSampling, .seed = 4, .temperature = 0.9f};

class FeatureForestTest : public ::testing::Test {
 protected:
  explicit FeatureForestTest(int64_t kv_cache_mb = 1) {
    testing::MakeTinyEagle3({}).Write(dir_);
    model_ = std::move(LoadEagle3({.model_directory = dir_.path(),
                                   .target_directory = target_.directory(),
                                   .num_threads = 2,
                                   .kv_cache_mb = kv_cache_mb})
                           .value()
                           .model);
  }

  // The feature of each position of a text. It depends on the position alone, which is enough to tell rows apart.
  std::vector<uint16_t> FeaturesOf(uint64_t first, uint64_t end) const {
    std::vector<uint16_t> values;
    for (uint64_t position = first; position < end; ++position) {
      const std::vector<uint16_t> feature =
          testing::RandomFeatures(1, kTinyHidden, static_cast<uint32_t>(100 + position)).front();
      values.insert(values.end(), feature.begin(), feature.end());
    }
    return values;
  }
  static std::vector<int32_t> Tokens(size_t count) {
    std::vector<int32_t> token_ids;
    for (size_t i = 0; i < count; ++i) token_ids.push_back(static_cast<int32_t>((37 * i + 11) % 1000));
    return token_ids;
  }
  static void GrowAll(DraftForest& forest) {
    while (!forest.Grow().empty()) forest.CheckIntegrity();
    forest.CheckIntegrity();
  }
  static TokenTree Snapshot(const DraftForest& forest, DraftForest::SessionId id) {
    return forest.Find(id).tree.Snapshot(forest.Find(id).position(), 24);
  }
  static void ExpectSame(const TokenTree& a, const TokenTree& b) {
    EXPECT_EQ(a.position, b.position);
    EXPECT_EQ(a.nodes, b.nodes) << "bit for bit";
    ASSERT_EQ(a.sampled.size(), b.sampled.size());
    for (size_t i = 0; i < a.sampled.size(); ++i) EXPECT_EQ(a.sampled[i].draft->probs, b.sampled[i].draft->probs);
  }
  // The tree of a session that gets everything at once, with features from `first` on.
  TokenTree GrownAtOnce(const SessionIntroduction& introduction, std::span<const int32_t> context, uint64_t first = 0) {
    DraftForest forest(*model_, kForestOptions);
    const DraftForest::SessionId id = forest.Open(introduction);
    forest.Append(id, context);
    forest.AppendFeatures(id, first, FeaturesOf(first, context.size() - 1));
    forest.Want(id, {.node_budget = 32});
    GrowAll(forest);
    return Snapshot(forest, id);
  }
  // The path of an expanded node of this depth. Empty: there is none.
  static std::vector<int32_t> ExpandedPath(const DraftForest& forest, DraftForest::SessionId id, int32_t depth) {
    const GrowingTree& tree = forest.Find(id).tree;
    for (int32_t node_idx = 1; node_idx < tree.num_nodes(); ++node_idx) {
      if (tree.node(node_idx).depth != depth || !tree.node(node_idx).is_expanded) continue;
      std::vector<int32_t> path;
      for (int32_t at = node_idx; at != GrowingTree::kRoot; at = tree.node(at).parent) {
        path.insert(path.begin(), tree.node(at).child.token_id);
      }
      return path;
    }
    return {};
  }

  testing::TinyTarget target_;
  testing::TempDir dir_;
  std::unique_ptr<DraftModel> model_;
};

TEST_F(FeatureForestTest, ASessionWaitsForItsFirstFeatures) {
  DraftForest forest(*model_, kForestOptions);
  const DraftForest::SessionId id = forest.Open(kGreedyFeatures);
  forest.Append(id, Tokens(20));
  forest.Want(id, {.node_budget = 32});
  EXPECT_THAT(forest.Grow(), ::testing::IsEmpty());
  forest.CheckIntegrity();
  // Without the last features there is still no root.
  forest.AppendFeatures(id, 0, FeaturesOf(0, 10));
  forest.Want(id, {.node_budget = 32});
  EXPECT_THAT(forest.Grow(), ::testing::ElementsAre(id));
  EXPECT_THAT(forest.Grow(), ::testing::IsEmpty());
  EXPECT_FALSE(forest.Find(id).has_answer());
  EXPECT_EQ(forest.Find(id).features->num_unused(), 0);
  forest.AppendFeatures(id, 10, FeaturesOf(10, 19));
  forest.Want(id, {.node_budget = 32});
  EXPECT_EQ(forest.Find(id).features->num_unused(), 9 * kTinyHidden);
  GrowAll(forest);
  EXPECT_EQ(forest.Find(id).features->num_unused(), 0);
  ExpectSame(Snapshot(forest, id), GrownAtOnce(kGreedyFeatures, Tokens(20)));
}

TEST_F(FeatureForestTest, AOneTokenContextHasNoRow) {
  DraftForest forest(*model_, kForestOptions);
  const DraftForest::SessionId id = forest.Open(kGreedyFeatures);
  forest.Append(id, Tokens(1));
  forest.AppendFeatures(id, 0, FeaturesOf(0, 1));  // before the token that its row takes
  forest.Want(id, {.node_budget = 32});
  GrowAll(forest);
  EXPECT_FALSE(forest.Find(id).has_answer());
  forest.Append(id, std::span<const int32_t>(Tokens(2)).last(1));
  forest.Want(id, {.node_budget = 32});
  GrowAll(forest);
  EXPECT_TRUE(forest.Find(id).has_answer());
  ExpectSame(Snapshot(forest, id), GrownAtOnce(kGreedyFeatures, Tokens(2)));
}

TEST_F(FeatureForestTest, FeaturesMayBeginLater) {
  DraftForest forest(*model_, kForestOptions);
  const DraftForest::SessionId id = forest.Open(kDrawnFeatures);
  forest.Append(id, Tokens(30));
  forest.Want(id, {.node_budget = 32});
  forest.AppendFeatures(id, 17, FeaturesOf(17, 29));
  forest.Want(id, {.node_budget = 32});
  GrowAll(forest);
  EXPECT_EQ(forest.Find(id).num_skipped, 18);
  EXPECT_EQ(forest.Find(id).size(), 12);
  EXPECT_EQ(Snapshot(forest, id).position, 30);
  ExpectSame(Snapshot(forest, id), GrownAtOnce(kDrawnFeatures, Tokens(30), 17));
  EXPECT_NE(Snapshot(forest, id).nodes, GrownAtOnce(kDrawnFeatures, Tokens(30)).nodes);
}

// The tree below the committed path was grown on predicted features. The root's children must be chosen again.
TEST_F(FeatureForestTest, AProvisionalTreeBecomesTheTreeOfTheFeatures) {
  for (const SessionIntroduction& introduction : {kGreedyFeatures, kDrawnFeatures, kSampledFeatures}) {
    DraftForest forest(*model_, kForestOptions);
    const DraftForest::SessionId id = forest.Open(introduction);
    std::vector<int32_t> context = Tokens(20);
    forest.Append(id, context);
    forest.AppendFeatures(id, 0, FeaturesOf(0, 19));
    forest.Want(id, {.node_budget = 32});
    GrowAll(forest);
    for (const size_t num_committed : {1, 2, 1}) {
      const std::vector<int32_t> path = ExpandedPath(forest, id, num_committed);
      ASSERT_EQ(path.size(), num_committed);
      const size_t num_before = context.size();
      context.insert(context.end(), path.begin(), path.end());
      forest.Append(id, path);
      forest.Want(id, {.node_budget = 32});
      forest.CheckIntegrity();
      EXPECT_TRUE(forest.Find(id).has_answer()) << "with the provisional tree";
      EXPECT_EQ(forest.Find(id).num_provisional(), num_committed);
      GrowAll(forest);
      const TokenTree provisional = Snapshot(forest, id);
      forest.AppendFeatures(id, num_before - 1, FeaturesOf(num_before - 1, context.size() - 1));
      forest.Want(id, {.node_budget = 32});
      GrowAll(forest);
      EXPECT_EQ(forest.Find(id).num_provisional(), 0);
      const TokenTree settled = Snapshot(forest, id);
      EXPECT_NE(provisional.nodes, settled.nodes);
      ExpectSame(settled, GrownAtOnce(introduction, context));
    }
  }
}

TEST_F(FeatureForestTest, TokensOffTheTreeWaitForTheirFeatures) {
  DraftForest forest(*model_, kForestOptions);
  const DraftForest::SessionId id = forest.Open(kGreedyFeatures);
  std::vector<int32_t> context = Tokens(20);
  forest.Append(id, context);
  forest.AppendFeatures(id, 0, FeaturesOf(0, 19));
  forest.Want(id, {.node_budget = 32});
  GrowAll(forest);
  std::vector<int32_t> committed = ExpandedPath(forest, id, 1);
  committed.push_back(1203);  // not of the draft vocabulary
  context.insert(context.end(), committed.begin(), committed.end());
  forest.Append(id, committed);
  forest.Want(id, {.node_budget = 32});
  EXPECT_FALSE(forest.Find(id).has_answer());
  EXPECT_THAT(forest.Grow(), ::testing::IsEmpty());
  // One of two features does not suffice.
  forest.AppendFeatures(id, 19, FeaturesOf(19, 20));
  forest.Want(id, {.node_budget = 32});
  GrowAll(forest);
  EXPECT_FALSE(forest.Find(id).has_answer());
  forest.AppendFeatures(id, 20, FeaturesOf(20, 21));
  forest.Want(id, {.node_budget = 32});
  GrowAll(forest);
  ExpectSame(Snapshot(forest, id), GrownAtOnce(kGreedyFeatures, context));
}

TEST_F(FeatureForestTest, AMaskIsAppliedWithoutNewFeatures) {
  DraftForest forest(*model_, kForestOptions);
  const DraftForest::SessionId id = forest.Open(kGreedyFeatures);
  forest.Append(id, Tokens(20));
  forest.AppendFeatures(id, 0, FeaturesOf(0, 19));
  forest.Want(id, {.node_budget = 32});
  GrowAll(forest);
  std::string bytes(152, 0);
  for (const int32_t token_id : {5, 10, 15, 600, 1204}) {
    bytes[token_id / 8] = static_cast<char>(bytes[token_id / 8] | 1 << token_id % 8);
  }
  const speculation::AllowedTokens allowed(bytes);
  forest.Want(id, {.node_budget = 32, .allowed = allowed});
  EXPECT_FALSE(forest.Find(id).has_answer());
  GrowAll(forest);
  ASSERT_TRUE(forest.Find(id).has_answer());
  std::vector<int32_t> children;
  for (const GrowingTree::Node& child : forest.Find(id).tree.Children(GrowingTree::kRoot)) {
    children.push_back(child.child.token_id);
  }
  EXPECT_THAT(children, ::testing::UnorderedElementsAre(5, 10, 15, 600)) << "1204 is not of the draft vocabulary";
}

TEST_F(FeatureForestTest, FeaturesThatAreNoNumbersGiveNoGuesses) {
  DraftForest forest(*model_, kForestOptions);
  const DraftForest::SessionId id = forest.Open(kSampledFeatures);
  forest.Append(id, Tokens(20));
  forest.AppendFeatures(id, 0, std::vector<uint16_t>(19 * kTinyHidden, 0x7fc0));
  forest.Want(id, {.node_budget = 32});
  GrowAll(forest);
  EXPECT_TRUE(forest.Find(id).has_answer());
  EXPECT_EQ(Snapshot(forest, id).num_nodes(), 0);
}

TEST_F(FeatureForestTest, ALongPromptIsComputedInChunks) {
  DraftForestOptions options = kForestOptions;
  options.max_context_rows = 16;
  DraftForest forest(*model_, options);
  const DraftForest::SessionId id = forest.Open(kDrawnFeatures);
  forest.Append(id, Tokens(90));
  for (uint64_t first = 0; first < 89; first += 30) {
    forest.AppendFeatures(id, first, FeaturesOf(first, std::min<uint64_t>(first + 30, 89)));
    forest.Want(id, {.node_budget = 32});
    forest.Grow();
    forest.CheckIntegrity();
  }
  GrowAll(forest);
  EXPECT_EQ(forest.counters().num_context_rows, 89);
  ExpectSame(Snapshot(forest, id), GrownAtOnce(kDrawnFeatures, Tokens(90)));
}

// A prompt's features come before its first tree is wanted. They may not wait for it.
TEST_F(FeatureForestTest, RowsOfAnIdleSessionAreComputedUpToItsRoot) {
  DraftForest forest(*model_, kForestOptions);
  const DraftForest::SessionId id = forest.Open(kDrawnFeatures);
  forest.Append(id, Tokens(300));
  forest.AppendFeatures(id, 0, FeaturesOf(0, 40));
  EXPECT_THAT(forest.Grow(), ::testing::IsEmpty()) << "so few rows wait for more";
  forest.AppendFeatures(id, 40, FeaturesOf(40, 299));
  EXPECT_THAT(forest.Grow(), ::testing::ElementsAre(id));
  GrowAll(forest);
  EXPECT_LT(forest.Find(id).features->num_unused(), 64 * kTinyHidden);
  EXPECT_FALSE(forest.Find(id).tree.is_root_expanded());
  forest.Want(id, {.node_budget = 32});
  GrowAll(forest);
  EXPECT_EQ(forest.counters().num_context_rows, 299);
  ExpectSame(Snapshot(forest, id), GrownAtOnce(kDrawnFeatures, Tokens(300)));
}

TEST_F(FeatureForestTest, IdleSessionsHaveTheRowsThatTheOthersLeave) {
  DraftForestOptions options = kForestOptions;
  options.max_context_rows = 16;
  DraftForest forest(*model_, options);
  const DraftForest::SessionId idle = forest.Open(kGreedyFeatures);
  const DraftForest::SessionId asked = forest.Open(kGreedyFeatures);
  for (const DraftForest::SessionId id : {idle, asked}) {
    forest.Append(id, Tokens(25));
    forest.AppendFeatures(id, 0, FeaturesOf(0, 24));
  }
  forest.Want(asked, {.node_budget = 32});
  EXPECT_THAT(forest.Grow(), ::testing::ElementsAre(asked));
  EXPECT_THAT(forest.Grow(), ::testing::ElementsAre(asked, idle));
  EXPECT_EQ(forest.Find(asked).num_settled, 24);
  EXPECT_EQ(forest.Find(idle).num_settled, 8);
  forest.CheckIntegrity();
}

TEST_F(FeatureForestTest, AnIdleSessionWithoutRoomIsForgotten) {
  DraftForest forest(*model_, kForestOptions);
  std::vector<DraftForest::SessionId> ids;
  for (int i = 0; i < 8; ++i) {  // 8 contexts of 32 blocks do not fit
    ids.push_back(forest.Open(kGreedyFeatures));
    forest.Append(ids[i], Tokens(500));
    forest.AppendFeatures(ids[i], 0, FeaturesOf(0, 499));
    GrowAll(forest);
  }
  EXPECT_FALSE(forest.Find(ids[0]).is_forgotten);
  EXPECT_TRUE(forest.Find(ids[7]).is_forgotten);
}

TEST_F(FeatureForestTest, ATreeDoesNotDependOnOtherTrees) {
  DraftForestOptions options = kForestOptions;
  options.max_tree_rows = 5;
  options.max_context_rows = 7;
  DraftForest forest(*model_, options);
  const std::vector<SessionIntroduction> introductions = {kGreedyFeatures, kDrawnFeatures, kSampledFeatures};
  std::vector<DraftForest::SessionId> ids;
  for (size_t i = 0; i < introductions.size(); ++i) {
    const DraftForest::SessionId id = ids.emplace_back(forest.Open(introductions[i]));
    forest.Append(id, Tokens(10 + 9 * i));
    forest.AppendFeatures(id, i, FeaturesOf(i, 9 + 9 * i));
    forest.Want(id, {.node_budget = 32});
    forest.Grow();
  }
  GrowAll(forest);
  for (size_t i = 0; i < ids.size(); ++i) {
    ExpectSame(Snapshot(forest, ids[i]), GrownAtOnce(introductions[i], Tokens(10 + 9 * i), i));
  }
}

// The cache has 256 blocks, 192 of them for contexts.
TEST_F(FeatureForestTest, AClearedSessionIsForgotten) {
  DraftForest forest(*model_, kForestOptions);
  std::vector<DraftForest::SessionId> ids;
  for (int i = 0; i < 8; ++i) {  // 8 contexts of 32 blocks do not fit
    const DraftForest::SessionId id = ids.emplace_back(forest.Open(kGreedyFeatures));
    forest.Append(id, Tokens(500));
    forest.AppendFeatures(id, 0, FeaturesOf(0, 499));
    forest.Want(id, {.node_budget = 32});
    GrowAll(forest);
    forest.Want(id, {.node_budget = 0});
  }
  EXPECT_TRUE(forest.Find(ids[0]).is_forgotten);
  EXPECT_TRUE(forest.Find(ids[1]).is_forgotten);
  EXPECT_FALSE(forest.Find(ids[2]).is_forgotten);
  EXPECT_THAT(forest.Find(ids[0]).blocks, ::testing::IsEmpty());
  // A forgotten session takes part in nothing.
  forest.Append(ids[0], Tokens(3));
  forest.AppendFeatures(ids[0], 499, FeaturesOf(499, 502));
  forest.Want(ids[0], {.node_budget = 32});
  EXPECT_THAT(forest.Grow(), ::testing::IsEmpty());
  EXPECT_FALSE(forest.Find(ids[0]).has_answer());
  forest.CheckIntegrity();
  forest.Close(ids[0]);
  forest.CheckIntegrity();
}

}  // namespace
}  // namespace foretoken::proposer
