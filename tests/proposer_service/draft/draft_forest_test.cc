// SPDX-License-Identifier: Apache-2.0
// Growing trees of the demo draft model. A tree must equal a fresh computation, whatever grew beside it and before it.
// If these tests fail, a draft model proposes tokens that it would not draw, or runs out of K/V room.
#include "proposer_service/draft/draft_forest.h"

#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/draft/transformer_draft.h"
#include "tests/reference/sampling.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;

constexpr DraftForestOptions kOptions = {.num_children = 6, .max_grown_nodes = 60, .learns_chances = false};

class DraftForestTest : public ::testing::Test {
 protected:
  explicit DraftForestTest(int32_t num_blocks = 256) : model_(testing::LoadDraftModel({.num_blocks = num_blocks})) {}

  DraftForest MakeDraftForest(const DraftForestOptions& options = kOptions) { return DraftForest(model_, options); }
  std::vector<int32_t> Tokens(const std::string& text) const {
    return model_.runnable().tokenizer.Encode(text).value();
  }
  static void GrowAll(DraftForest& forest) {
    while (!forest.Grow().empty()) forest.CheckIntegrity();
  }
  static void Append(DraftForest& forest, DraftForest::SessionId id, std::span<const int32_t> token_ids) {
    forest.Append(id, token_ids);
    forest.Want(id, {.node_budget = 32});
  }
  static TokenTree Snapshot(const DraftForest& forest, DraftForest::SessionId id, int32_t max_nodes = 24) {
    return forest.Find(id).tree.Snapshot(forest.Find(id).size(), max_nodes);
  }
  // The tree that grows in a forest of its own.
  TokenTree GrownAlone(const SessionIntroduction& introduction, std::span<const int32_t> context) {
    DraftForest forest = MakeDraftForest();
    const DraftForest::SessionId id = forest.Open(introduction);
    Append(forest, id, context);
    GrowAll(forest);
    return Snapshot(forest, id);
  }
  static void ExpectSame(const TokenTree& a, const TokenTree& b) {
    EXPECT_EQ(a.position, b.position);
    EXPECT_EQ(a.nodes, b.nodes) << "bit for bit";
  }

  TransformerDraft model_;
};

const SessionIntroduction kGreedy = {.seed = 1, .temperature = 0};
const SessionIntroduction kDrawn = {.seed = 2, .sample_index = 3, .temperature = 0.8f, .top_p = 0.95f};

TEST_F(DraftForestTest, TheLikeliestPathIsTheDraftsOwnOutput) {
  for (const SessionIntroduction& introduction : {kGreedy, kDrawn}) {
    DraftForest forest = MakeDraftForest();
    const std::vector<int32_t> prompt = Tokens("def add(a, b):\n    ");
    const DraftForest::SessionId id = forest.Open(introduction);
    Append(forest, id, prompt);
    GrowAll(forest);
    // Token by token, the model computes the whole context in one chunk, and the reference draws from its row.
    std::vector<int32_t> context = prompt;
    int32_t node_idx = GrowingTree::kRoot;
    for (int i = 0; i < 3; ++i) {
      model::RunnableModel plain = testing::LoadDraftModel();
      std::vector<int32_t> blocks(16);
      for (int32_t block = 0; block < 16; ++block) blocks[block] = block;
      model::ForwardBatch batch;
      batch.logit_rows = {model::AppendSegment({.block_table = blocks, .chain = context}, &batch)};
      const kernels::ConstTensorView logits = plain.transformer->Forward(batch, plain.kv);
      reference::DrawInputs inputs = {.t = static_cast<uint32_t>(context.size())};
      inputs.logits.assign(logits.as<float>(), logits.as<float>() + plain.num_tokens());
      inputs.sampling = forest.Find(id).sampling;
      const std::span<const GrowingTree::Node> children = forest.Find(id).tree.Children(node_idx);
      ASSERT_FALSE(children.empty()) << "depth " << i;
      EXPECT_EQ(children[0].child.token_id, reference::DrawToken(inputs));
      context.push_back(children[0].child.token_id);
      node_idx = forest.Find(id).tree.node(node_idx).first_child;
    }
  }
}

TEST_F(DraftForestTest, ATreeKeptAcrossAnAdvanceEqualsAFreshOne) {
  for (const SessionIntroduction& introduction : {kGreedy, kDrawn}) {
    DraftForest forest = MakeDraftForest();
    const DraftForest::SessionId id = forest.Open(introduction);
    std::vector<int32_t> context = Tokens("import os\nimport sys\n\n\nclass Reader:\n");
    Append(forest, id, context);
    // Committed paths inside the tree, and paths that leave it after their first tokens.
    for (const size_t num_off_path : {0, 0, 1, 0, 2}) {
      GrowAll(forest);
      std::vector<int32_t> committed;
      const GrowingTree& tree = forest.Find(id).tree;
      for (int32_t at = GrowingTree::kRoot; !tree.Children(at).empty() && committed.size() < 3;) {
        committed.push_back(tree.Children(at)[committed.size() % 2].child.token_id);
        at = tree.node(at).first_child + static_cast<int32_t>((committed.size() - 1) % 2);
      }
      for (size_t i = 0; i < num_off_path; ++i) committed.push_back(100 + static_cast<int32_t>(i));
      Append(forest, id, committed);
      forest.CheckIntegrity();
      context.insert(context.end(), committed.begin(), committed.end());
    }
    GrowAll(forest);
    ExpectSame(Snapshot(forest, id), GrownAlone(introduction, context));
  }
}

TEST_F(DraftForestTest, ATreeDoesNotDependOnOtherTrees) {
  DraftForest forest = MakeDraftForest(
      {.num_children = 6, .max_tree_rows = 5, .max_context_rows = 7, .max_grown_nodes = 60, .learns_chances = false});
  std::vector<SessionIntroduction> introductions = {kGreedy, kDrawn, kGreedy, kDrawn};
  introductions[3].seed = 9;
  const std::vector<std::string> texts = {"x = 1\n", "def f(", "import numpy as np\nfor i in range(10):\n", "class A"};
  std::vector<DraftForest::SessionId> ids;
  for (size_t i = 0; i < texts.size(); ++i) {
    ids.push_back(forest.Open(introductions[i]));
    Append(forest, ids[i], Tokens(texts[i]));
    forest.Grow();
  }
  GrowAll(forest);
  for (size_t i = 0; i < texts.size(); ++i) {
    ExpectSame(Snapshot(forest, ids[i]), GrownAlone(introductions[i], Tokens(texts[i])));
  }
}

// The sessions of all temperatures teach one model of chances, and at low ones the scores are far apart.
TEST_F(DraftForestTest, ALowTemperatureSpoilsNoOtherSessionsChances) {
  DraftForest forest = MakeDraftForest({.num_children = 6, .max_grown_nodes = 60});
  const auto best_chance = [&] {
    const DraftForest::SessionId id = forest.Open({.seed = 2, .temperature = 0.8f});
    Append(forest, id, Tokens("def add(a, b):\n    "));
    GrowAll(forest);
    const float chance = forest.Find(id).tree.Children(GrowingTree::kRoot)[0].child.chance;
    forest.Close(id);
    return chance;
  };
  const float before = best_chance();
  const DraftForest::SessionId cold = forest.Open({.seed = 1, .temperature = 1e-4f});
  Append(forest, cold, Tokens("import os\n"));
  for (int i = 0; i < 60; ++i) {
    GrowAll(forest);
    const std::span<const GrowingTree::Node> children = forest.Find(cold).tree.Children(GrowingTree::kRoot);
    ASSERT_GE(children.size(), 2);
    Append(forest, cold, std::vector<int32_t>{children[i % 5 == 0 ? 1 : 0].child.token_id});  // four of five are hits
  }
  EXPECT_GT(best_chance(), before / 2);
}

TEST_F(DraftForestTest, AnAdvanceIntoTheTreeNeedsNoPass) {
  DraftForest forest = MakeDraftForest();
  const DraftForest::SessionId id = forest.Open(kGreedy);
  Append(forest, id, Tokens("for i in range("));
  GrowAll(forest);
  const uint64_t num_passes = forest.counters().num_passes;
  const GrowingTree& tree = forest.Find(id).tree;
  const int32_t first = tree.node(GrowingTree::kRoot).first_child;
  Append(forest, id, std::vector<int32_t>{tree.node(first).child.token_id});
  EXPECT_TRUE(forest.Find(id).tree.is_root_expanded());
  EXPECT_GT(Snapshot(forest, id).num_nodes(), 6);
  EXPECT_EQ(forest.counters().num_passes, num_passes);
}

TEST_F(DraftForestTest, GrowingEnds) {
  DraftForest forest = MakeDraftForest();
  const DraftForest::SessionId id = forest.Open(kDrawn);
  Append(forest, id, Tokens("return "));
  GrowAll(forest);
  EXPECT_LE(forest.Find(id).tree.num_expanded(), kOptions.max_grown_nodes);
  EXPECT_FALSE(forest.WantsRows(forest.Find(id)));
  EXPECT_THAT(forest.Grow(), ::testing::IsEmpty());
}

TEST_F(DraftForestTest, OtherTreesGrowWhileALongPromptIsComputed) {
  DraftForest forest = MakeDraftForest({.max_tree_rows = 16, .max_context_rows = 16, .min_path_chance = 0});
  const DraftForest::SessionId quick = forest.Open(kGreedy);
  Append(forest, quick, Tokens("a = b"));
  forest.Grow();
  const DraftForest::SessionId slow = forest.Open(kGreedy);
  Append(forest, slow, std::vector<int32_t>(300, 17));
  for (int pass = 0; pass < 5; ++pass) {
    const int32_t before = forest.Find(quick).tree.num_expanded();
    forest.Grow();
    EXPECT_GT(forest.Find(quick).tree.num_expanded(), before);
    EXPECT_EQ(forest.Find(slow).num_computed, 16 * (pass + 1));
  }
  // A short advance overtakes the long prompt.
  Append(forest, quick, std::vector<int32_t>{3999});
  forest.Grow();
  EXPECT_TRUE(forest.Find(quick).tree.is_root_expanded());
}

TEST_F(DraftForestTest, ContextsEndWhereTheModelEnds) {
  DraftForest forest = MakeDraftForest();
  const DraftForest::SessionId id = forest.Open(kGreedy);
  Append(forest, id, std::vector<int32_t>(1022, 17));
  GrowAll(forest);
  EXPECT_FALSE(forest.Find(id).is_refused);
  const TokenTree tree = Snapshot(forest, id, 1000);
  EXPECT_EQ(speculation::CutDepth(tree, 3).num_nodes(), tree.num_nodes()) << "positions 1022, 1023, and a last guess";
  Append(forest, id, std::vector<int32_t>(3, 17));
  EXPECT_TRUE(forest.Find(id).is_refused);
  forest.CheckIntegrity();
}

TEST_F(DraftForestTest, ATokenThatTheModelDoesNotHaveIsRefused) {
  DraftForest forest = MakeDraftForest();
  const DraftForest::SessionId id = forest.Open(kGreedy);
  Append(forest, id, std::vector<int32_t>{1, 4096});
  EXPECT_TRUE(forest.Find(id).is_refused);
  EXPECT_THAT(forest.Grow(), ::testing::IsEmpty());
}

TEST_F(DraftForestTest, AnIdleSessionTakesPartInNoPassAndCatchesUpLater) {
  DraftForest forest =
      MakeDraftForest({.num_children = 6, .max_context_rows = 16, .max_grown_nodes = 60, .learns_chances = false});
  const DraftForest::SessionId id = forest.Open(kDrawn);
  std::vector<int32_t> context = Tokens("import os\nimport sys\n\n\nclass Reader:\n    def __init__(self):\n");
  ASSERT_GT(context.size(), 16);
  forest.Append(id, context);
  EXPECT_THAT(forest.Grow(), ::testing::IsEmpty()) << "the verifier wants no tree yet";
  forest.Want(id, {.node_budget = 32});
  forest.Grow();
  forest.Grow();
  EXPECT_GT(forest.Find(id).num_computed, 16);
  const int32_t guess = forest.Find(id).tree.Children(GrowingTree::kRoot)[0].child.token_id;
  // While the session is idle, one committed path stays in its tree and one leaves it.
  for (const std::vector<int32_t>& committed : {std::vector<int32_t>{guess}, std::vector<int32_t>(20, 3000)}) {
    forest.Append(id, committed);
    forest.Want(id, {.node_budget = 0});
    context.insert(context.end(), committed.begin(), committed.end());
    EXPECT_FALSE(forest.WantsRows(forest.Find(id)));
    EXPECT_THAT(forest.Grow(), ::testing::IsEmpty());
    forest.CheckIntegrity();
  }
  const uint64_t num_passes = forest.counters().num_passes;
  forest.Want(id, {.node_budget = 32});
  forest.Grow();
  EXPECT_FALSE(forest.Find(id).tree.is_root_expanded()) << "20 rows in chunks of 16";
  GrowAll(forest);
  EXPECT_GT(forest.counters().num_passes, num_passes + 2);
  ExpectSame(Snapshot(forest, id), GrownAlone(kDrawn, context));
}

// 16 blocks: 12 for contexts and 4 for the 64 slots of trees.
class SmallDraftForestTest : public DraftForestTest {
 protected:
  SmallDraftForestTest() : DraftForestTest(16) {}
};

TEST_F(SmallDraftForestTest, AContextWithoutRoomIsRefusedAndOthersGoOn) {
  DraftForest forest = MakeDraftForest();
  const DraftForest::SessionId first = forest.Open(kGreedy);
  Append(forest, first, std::vector<int32_t>(150, 20));
  const DraftForest::SessionId second = forest.Open(kGreedy);
  Append(forest, second, std::vector<int32_t>(60, 20));
  EXPECT_FALSE(forest.Find(first).is_refused);
  EXPECT_TRUE(forest.Find(second).is_refused);
  GrowAll(forest);
  EXPECT_GT(forest.Find(first).tree.num_expanded(), 0);
  forest.Close(first);
  forest.Close(second);
  const DraftForest::SessionId third = forest.Open(kGreedy);
  Append(forest, third, std::vector<int32_t>(192, 20));
  EXPECT_FALSE(forest.Find(third).is_refused);
  GrowAll(forest);
}

TEST_F(SmallDraftForestTest, AContextThatCannotFitTakesNoBlocksFromIdleSessions) {
  DraftForest forest = MakeDraftForest();
  EXPECT_EQ(forest.max_context_tokens(), 12 * 16);
  const DraftForest::SessionId idle = forest.Open(kGreedy), active = forest.Open(kGreedy);
  Append(forest, idle, std::vector<int32_t>(48, 20));
  forest.Want(idle, {.node_budget = 0});
  Append(forest, active, std::vector<int32_t>(96, 20));
  for (const int32_t num_tokens : {97, 193}) {  // 3 blocks are free, 3 are the idle session's, and 12 hold 192 tokens
    const DraftForest::SessionId large = forest.Open(kGreedy);
    Append(forest, large, std::vector<int32_t>(num_tokens, 20));
    EXPECT_TRUE(forest.Find(large).is_refused);
    EXPECT_EQ(forest.Find(idle).blocks.size(), 3);
  }
  const DraftForest::SessionId fitting = forest.Open(kGreedy);
  Append(forest, fitting, std::vector<int32_t>(96, 20));
  EXPECT_FALSE(forest.Find(fitting).is_refused);
  EXPECT_THAT(forest.Find(idle).blocks, ::testing::IsEmpty());
  forest.CheckIntegrity();
}

TEST_F(SmallDraftForestTest, TheLongestIdleSessionMakesRoomForContexts) {
  DraftForest forest = MakeDraftForest();
  const std::vector<int32_t> context =
      Tokens("def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n");
  ASSERT_GT(context.size(), 16);
  const DraftForest::SessionId long_idle = forest.Open(kGreedy), idle = forest.Open(kGreedy),
                               active = forest.Open(kGreedy);
  for (const DraftForest::SessionId id : {long_idle, idle}) {
    Append(forest, id, context);
    GrowAll(forest);
    forest.Want(id, {.node_budget = 0});
  }
  const int32_t num_free = 12 - 2 * static_cast<int32_t>(forest.Find(idle).blocks.size());
  Append(forest, active, std::vector<int32_t>(16 * num_free + 1, 20));
  EXPECT_FALSE(forest.Find(active).is_refused);
  EXPECT_THAT(forest.Find(long_idle).blocks, ::testing::IsEmpty());
  EXPECT_THAT(forest.Find(idle).blocks, ::testing::Not(::testing::IsEmpty()));
  GrowAll(forest);
  // An idle session may have fewer blocks than its context needs, and takes none from other sessions.
  forest.Append(idle, std::vector<int32_t>(100, 21));
  forest.Want(idle, {.node_budget = 0});
  EXPECT_FALSE(forest.Find(idle).is_refused);
  EXPECT_FALSE(forest.Find(active).is_refused);
  forest.CheckIntegrity();
  // A session computes cleared blocks again.
  forest.Close(active);
  forest.Want(long_idle, {.node_budget = 32});
  GrowAll(forest);
  ExpectSame(Snapshot(forest, long_idle), GrownAlone(kGreedy, context));
}

TEST_F(SmallDraftForestTest, ASessionThatIsNotAskedWhileOthersAreBecomesIdle) {
  DraftForest forest = MakeDraftForest();
  const DraftForest::SessionId silent = forest.Open(kGreedy), busy = forest.Open(kGreedy),
                               reading = forest.Open(kGreedy);
  Append(forest, silent, Tokens("if x"));
  Append(forest, busy, Tokens("if y"));
  GrowAll(forest);
  Append(forest, reading, Tokens("if z"));
  for (int i = 0; i < 20; ++i) forest.Want(busy, {.node_budget = 32});
  EXPECT_FALSE(forest.Find(silent).is_idle());
  for (int i = 0; i < 10; ++i) forest.Want(busy, {.node_budget = 32});
  EXPECT_TRUE(forest.Find(silent).is_idle());
  EXPECT_FALSE(forest.Find(reading).is_idle()) << "its answer is still due";
  forest.Want(silent, {.node_budget = 32});
  EXPECT_FALSE(forest.Find(silent).is_idle());
}

TEST_F(SmallDraftForestTest, AnIdleSessionsTreeMakesRoomFirst) {
  DraftForest forest = MakeDraftForest({.max_grown_nodes = 30, .min_path_chance = 0, .learns_chances = false});
  const DraftForest::SessionId first = forest.Open(kGreedy), second = forest.Open(kDrawn), third = forest.Open(kDrawn);
  for (const DraftForest::SessionId id : {first, second}) {
    Append(forest, id, Tokens("if x"));
    GrowAll(forest);
  }
  forest.Want(second, {.node_budget = 0});
  Append(forest, third, Tokens("while y"));
  GrowAll(forest);
  EXPECT_EQ(forest.Find(third).tree.num_expanded(), 30);
  EXPECT_EQ(forest.Find(first).tree.num_expanded(), 30) << "though it was asked before the idle session";
  EXPECT_EQ(forest.Find(second).tree.num_expanded(), 0);
  EXPECT_EQ(forest.counters().num_evicted_trees, 1);
  forest.CheckIntegrity();
}

TEST_F(SmallDraftForestTest, TheTreeAskedForLongestAgoMakesRoom) {
  DraftForest forest = MakeDraftForest({.max_grown_nodes = 60, .min_path_chance = 0, .learns_chances = false});
  const DraftForest::SessionId older = forest.Open(kGreedy), newer = forest.Open(kDrawn);
  Append(forest, older, Tokens("if x"));
  GrowAll(forest);
  EXPECT_EQ(forest.Find(older).tree.num_expanded(), 60);
  Append(forest, newer, Tokens("while y"));
  GrowAll(forest);
  EXPECT_GE(forest.Find(newer).tree.num_expanded(), 32) << "its share";
  EXPECT_GE(forest.counters().num_evicted_trees, 1);
  EXPECT_TRUE(forest.Find(older).tree.is_root_expanded());
  EXPECT_LE(forest.Find(older).tree.num_expanded(), 32) << "the slots that the other session leaves";
}

class LargeDraftForestTest : public DraftForestTest {
 protected:
  LargeDraftForestTest() : DraftForestTest(512) {}
};

// The other sessions need 192 rows before each pass, and a pass computes 128.
TEST_F(LargeDraftForestTest, ShortContextsDoNotStopALongPrompt) {
  DraftForest forest = MakeDraftForest({.max_tree_rows = 1, .learns_chances = false});
  const DraftForest::SessionId slow = forest.Open(kGreedy);
  Append(forest, slow, std::vector<int32_t>(200, 17));
  std::vector<DraftForest::SessionId> busy;
  for (int i = 0; i < 64; ++i) busy.push_back(forest.Open(kGreedy));
  for (int pass = 0; pass < 8; ++pass) {
    for (const DraftForest::SessionId id : busy) Append(forest, id, std::vector<int32_t>{20, 21, 22});
    const uint64_t before = forest.counters().num_context_rows;
    forest.Grow();
    EXPECT_EQ(forest.counters().num_context_rows - before, 128);
    EXPECT_EQ(forest.Find(slow).num_computed, std::min(32 * (pass + 1), 200));
  }
  EXPECT_FALSE(forest.Find(slow).waits_since.has_value());
  forest.CheckIntegrity();
}

}  // namespace
}  // namespace foretoken::proposer
