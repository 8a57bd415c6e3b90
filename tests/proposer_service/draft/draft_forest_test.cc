// SPDX-License-Identifier: Apache-2.0
// Growing trees of the demo draft model: they are what a fresh computation says, whatever grew beside and before them.
#include "proposer_service/draft/draft_forest.h"

#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reference/sampling.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;

constexpr GardenOptions kOptions = {.num_children = 6, .max_grown_nodes = 60, .learns_chances = false};

class GardenTest : public ::testing::Test {
 protected:
  explicit GardenTest(int32_t num_blocks = 256) : model_(testing::LoadDraftModel({.num_blocks = num_blocks})) {}

  Garden MakeGarden(const GardenOptions& options = kOptions) {
    return Garden({.transformer = model_.transformer.get(), .kv = &model_.kv, .num_tokens = model_.num_tokens()},
                  options);
  }
  std::vector<int32_t> Tokens(const std::string& text) const { return model_.tokenizer.Encode(text).value(); }
  static void GrowAll(Garden& garden) {
    while (!garden.Grow().empty()) garden.CheckIntegrity();
  }
  static void Append(Garden& garden, Garden::PlantId id, std::span<const int32_t> token_ids) {
    garden.Append(id, token_ids);
    garden.Want(id, {.node_budget = 32});
  }
  static TokenTree Snapshot(const Garden& garden, Garden::PlantId id, int32_t max_nodes = 24) {
    return garden.Find(id).tree.Snapshot(garden.Find(id).size(), max_nodes);
  }
  // In a garden of its own.
  TokenTree GrownAlone(const SessionIntroduction& introduction, std::span<const int32_t> context) {
    Garden garden = MakeGarden();
    const Garden::PlantId id = garden.Open(introduction);
    Append(garden, id, context);
    GrowAll(garden);
    return Snapshot(garden, id);
  }
  static void ExpectSame(const TokenTree& a, const TokenTree& b) {
    EXPECT_EQ(a.position, b.position);
    EXPECT_EQ(a.nodes, b.nodes) << "bit for bit";
  }

  model::RunnableModel model_;
};

const SessionIntroduction kGreedy = {.seed = 1, .temperature = 0};
const SessionIntroduction kDrawn = {.seed = 2, .sample_index = 3, .temperature = 0.8f, .top_p = 0.95f};

TEST_F(GardenTest, TheLikeliestPathIsWhatTheDraftWouldSay) {
  for (const SessionIntroduction& introduction : {kGreedy, kDrawn}) {
    Garden garden = MakeGarden();
    const std::vector<int32_t> prompt = Tokens("def add(a, b):\n    ");
    const Garden::PlantId id = garden.Open(introduction);
    Append(garden, id, prompt);
    GrowAll(garden);
    // Token by token: the whole context in one chunk, drawn by the reference.
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
      inputs.sampling = garden.Find(id).sampling;
      const std::span<const GrowingTree::Node> children = garden.Find(id).tree.Children(node_idx);
      ASSERT_FALSE(children.empty()) << "depth " << i;
      EXPECT_EQ(children[0].child.token_id, reference::DrawToken(inputs));
      context.push_back(children[0].child.token_id);
      node_idx = garden.Find(id).tree.node(node_idx).first_child;
    }
  }
}

TEST_F(GardenTest, WhatIsKeptAcrossAnAdvanceIsWhatAFreshComputationSays) {
  for (const SessionIntroduction& introduction : {kGreedy, kDrawn}) {
    Garden garden = MakeGarden();
    const Garden::PlantId id = garden.Open(introduction);
    std::vector<int32_t> context = Tokens("import os\nimport sys\n\n\nclass Reader:\n");
    Append(garden, id, context);
    // Paths that stay in the tree, that end at its edge, and that leave it.
    for (const size_t num_off_path : {0, 0, 1, 0, 2}) {
      GrowAll(garden);
      std::vector<int32_t> committed;
      const GrowingTree& tree = garden.Find(id).tree;
      for (int32_t at = GrowingTree::kRoot; !tree.Children(at).empty() && committed.size() < 3;) {
        committed.push_back(tree.Children(at)[committed.size() % 2].child.token_id);
        at = tree.node(at).first_child + static_cast<int32_t>((committed.size() - 1) % 2);
      }
      for (size_t i = 0; i < num_off_path; ++i) committed.push_back(100 + static_cast<int32_t>(i));
      Append(garden, id, committed);
      garden.CheckIntegrity();
      context.insert(context.end(), committed.begin(), committed.end());
    }
    GrowAll(garden);
    ExpectSame(Snapshot(garden, id), GrownAlone(introduction, context));
  }
}

TEST_F(GardenTest, ATreeDoesNotDependOnWhatGrowsBesideIt) {
  Garden garden = MakeGarden(
      {.num_children = 6, .max_tree_rows = 5, .max_context_rows = 7, .max_grown_nodes = 60, .learns_chances = false});
  std::vector<SessionIntroduction> introductions = {kGreedy, kDrawn, kGreedy, kDrawn};
  introductions[3].seed = 9;
  const std::vector<std::string> texts = {"x = 1\n", "def f(", "import numpy as np\nfor i in range(10):\n", "class A"};
  std::vector<Garden::PlantId> ids;
  for (size_t i = 0; i < texts.size(); ++i) {
    ids.push_back(garden.Open(introductions[i]));
    Append(garden, ids[i], Tokens(texts[i]));
    garden.Grow();
  }
  GrowAll(garden);
  for (size_t i = 0; i < texts.size(); ++i) {
    ExpectSame(Snapshot(garden, ids[i]), GrownAlone(introductions[i], Tokens(texts[i])));
  }
}

TEST_F(GardenTest, AnAdvanceIntoTheTreeNeedsNoPass) {
  Garden garden = MakeGarden();
  const Garden::PlantId id = garden.Open(kGreedy);
  Append(garden, id, Tokens("for i in range("));
  GrowAll(garden);
  const uint64_t num_passes = garden.counters().num_passes;
  const GrowingTree& tree = garden.Find(id).tree;
  const int32_t first = tree.node(GrowingTree::kRoot).first_child;
  Append(garden, id, std::vector<int32_t>{tree.node(first).child.token_id});
  EXPECT_TRUE(garden.Find(id).tree.is_root_expanded());
  EXPECT_GT(Snapshot(garden, id).num_nodes(), 6);
  EXPECT_EQ(garden.counters().num_passes, num_passes);
}

TEST_F(GardenTest, GrowingEnds) {
  Garden garden = MakeGarden();
  const Garden::PlantId id = garden.Open(kDrawn);
  Append(garden, id, Tokens("return "));
  GrowAll(garden);
  EXPECT_LE(garden.Find(id).tree.num_expanded(), kOptions.max_grown_nodes);
  EXPECT_FALSE(garden.WantsTreeRows(garden.Find(id)));
  EXPECT_THAT(garden.Grow(), ::testing::IsEmpty());
}

TEST_F(GardenTest, OthersGrowWhileALongPromptIsRead) {
  Garden garden = MakeGarden({.max_tree_rows = 16, .max_context_rows = 16, .min_path_chance = 0});
  const Garden::PlantId quick = garden.Open(kGreedy);
  Append(garden, quick, Tokens("a = b"));
  garden.Grow();
  const Garden::PlantId slow = garden.Open(kGreedy);
  Append(garden, slow, std::vector<int32_t>(300, 17));
  for (int pass = 0; pass < 5; ++pass) {
    const int32_t before = garden.Find(quick).tree.num_expanded();
    garden.Grow();
    EXPECT_GT(garden.Find(quick).tree.num_expanded(), before);
    EXPECT_EQ(garden.Find(slow).num_computed, 16 * (pass + 1));
  }
  // And an advance overtakes it.
  Append(garden, quick, std::vector<int32_t>{3999});
  garden.Grow();
  EXPECT_TRUE(garden.Find(quick).tree.is_root_expanded());
}

TEST_F(GardenTest, ContextsEndWhereTheModelEnds) {
  Garden garden = MakeGarden();
  const Garden::PlantId id = garden.Open(kGreedy);
  Append(garden, id, std::vector<int32_t>(1022, 17));
  GrowAll(garden);
  EXPECT_FALSE(garden.Find(id).is_refused);
  const TokenTree tree = Snapshot(garden, id, 1000);
  EXPECT_EQ(speculation::CutDepth(tree, 3).num_nodes(), tree.num_nodes()) << "positions 1022, 1023, and a last guess";
  Append(garden, id, std::vector<int32_t>(3, 17));
  EXPECT_TRUE(garden.Find(id).is_refused);
  garden.CheckIntegrity();
}

TEST_F(GardenTest, ATokenThatTheModelDoesNotHaveIsRefused) {
  Garden garden = MakeGarden();
  const Garden::PlantId id = garden.Open(kGreedy);
  Append(garden, id, std::vector<int32_t>{1, 4096});
  EXPECT_TRUE(garden.Find(id).is_refused);
  EXPECT_THAT(garden.Grow(), ::testing::IsEmpty());
}

TEST_F(GardenTest, ASleeperTakesPartInNoPassAndCatchesUpWhenItWakes) {
  Garden garden =
      MakeGarden({.num_children = 6, .max_context_rows = 16, .max_grown_nodes = 60, .learns_chances = false});
  const Garden::PlantId id = garden.Open(kDrawn);
  std::vector<int32_t> context = Tokens("import os\nimport sys\n\n\nclass Reader:\n    def __init__(self):\n");
  ASSERT_GT(context.size(), 16);
  garden.Append(id, context);
  EXPECT_THAT(garden.Grow(), ::testing::IsEmpty()) << "nothing is wanted yet";
  garden.Want(id, {.node_budget = 32});
  garden.Grow();
  garden.Grow();
  EXPECT_GT(garden.Find(id).num_computed, 16);
  const int32_t guess = garden.Find(id).tree.Children(GrowingTree::kRoot)[0].child.token_id;
  // In the tree, and then out of it, asleep.
  for (const std::vector<int32_t>& committed : {std::vector<int32_t>{guess}, std::vector<int32_t>(20, 3000)}) {
    garden.Append(id, committed);
    garden.Want(id, {.node_budget = 0});
    context.insert(context.end(), committed.begin(), committed.end());
    EXPECT_FALSE(garden.WantsTreeRows(garden.Find(id)));
    EXPECT_THAT(garden.Grow(), ::testing::IsEmpty());
    garden.CheckIntegrity();
  }
  const uint64_t num_passes = garden.counters().num_passes;
  garden.Want(id, {.node_budget = 32});
  garden.Grow();
  EXPECT_FALSE(garden.Find(id).tree.is_root_expanded()) << "20 rows in chunks of 16";
  GrowAll(garden);
  EXPECT_GT(garden.counters().num_passes, num_passes + 2);
  ExpectSame(Snapshot(garden, id), GrownAlone(kDrawn, context));
}

// 16 blocks: 12 for contexts, 4 for 64 nodes.
class SmallGardenTest : public GardenTest {
 protected:
  SmallGardenTest() : GardenTest(16) {}
};

TEST_F(SmallGardenTest, AContextWithoutRoomIsRefusedAndOthersGoOn) {
  Garden garden = MakeGarden();
  const Garden::PlantId first = garden.Open(kGreedy);
  Append(garden, first, std::vector<int32_t>(150, 20));
  const Garden::PlantId second = garden.Open(kGreedy);
  Append(garden, second, std::vector<int32_t>(60, 20));
  EXPECT_FALSE(garden.Find(first).is_refused);
  EXPECT_TRUE(garden.Find(second).is_refused);
  GrowAll(garden);
  EXPECT_GT(garden.Find(first).tree.num_expanded(), 0);
  garden.Close(first);
  garden.Close(second);
  const Garden::PlantId third = garden.Open(kGreedy);
  Append(garden, third, std::vector<int32_t>(192, 20));
  EXPECT_FALSE(garden.Find(third).is_refused);
  GrowAll(garden);
}

TEST_F(SmallGardenTest, TheLongestSleeperMakesRoomForContexts) {
  Garden garden = MakeGarden();
  const std::vector<int32_t> context =
      Tokens("def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n");
  ASSERT_GT(context.size(), 16);
  const Garden::PlantId long_asleep = garden.Open(kGreedy), asleep = garden.Open(kGreedy), awake = garden.Open(kGreedy);
  for (const Garden::PlantId id : {long_asleep, asleep}) {
    Append(garden, id, context);
    GrowAll(garden);
    garden.Want(id, {.node_budget = 0});
  }
  const int32_t num_free = 12 - 2 * static_cast<int32_t>(garden.Find(asleep).blocks.size());
  Append(garden, awake, std::vector<int32_t>(16 * num_free + 1, 20));
  EXPECT_FALSE(garden.Find(awake).is_refused);
  EXPECT_THAT(garden.Find(long_asleep).blocks, ::testing::IsEmpty());
  EXPECT_THAT(garden.Find(asleep).blocks, ::testing::Not(::testing::IsEmpty()));
  GrowAll(garden);
  // Sleepers hold on to less than they need, and take it from nobody.
  garden.Append(asleep, std::vector<int32_t>(100, 21));
  garden.Want(asleep, {.node_budget = 0});
  EXPECT_FALSE(garden.Find(asleep).is_refused);
  EXPECT_FALSE(garden.Find(awake).is_refused);
  garden.CheckIntegrity();
  // What was taken from it is computed again.
  garden.Close(awake);
  garden.Want(long_asleep, {.node_budget = 32});
  GrowAll(garden);
  ExpectSame(Snapshot(garden, long_asleep), GrownAlone(kGreedy, context));
}

TEST_F(SmallGardenTest, APlantThatIsNotAskedWhileOthersAreFallsAsleep) {
  Garden garden = MakeGarden();
  const Garden::PlantId silent = garden.Open(kGreedy), busy = garden.Open(kGreedy), reading = garden.Open(kGreedy);
  Append(garden, silent, Tokens("if x"));
  Append(garden, busy, Tokens("if y"));
  GrowAll(garden);
  Append(garden, reading, Tokens("if z"));
  for (int i = 0; i < 20; ++i) garden.Want(busy, {.node_budget = 32});
  EXPECT_FALSE(garden.Find(silent).sleeps());
  for (int i = 0; i < 10; ++i) garden.Want(busy, {.node_budget = 32});
  EXPECT_TRUE(garden.Find(silent).sleeps());
  EXPECT_FALSE(garden.Find(reading).sleeps()) << "it has yet to answer";
  garden.Want(silent, {.node_budget = 32});
  EXPECT_FALSE(garden.Find(silent).sleeps());
}

TEST_F(SmallGardenTest, ASleepersTreeMakesRoomFirst) {
  Garden garden = MakeGarden({.max_grown_nodes = 30, .min_path_chance = 0, .learns_chances = false});
  const Garden::PlantId first = garden.Open(kGreedy), second = garden.Open(kDrawn), third = garden.Open(kDrawn);
  for (const Garden::PlantId id : {first, second}) {
    Append(garden, id, Tokens("if x"));
    GrowAll(garden);
  }
  garden.Want(second, {.node_budget = 0});
  Append(garden, third, Tokens("while y"));
  GrowAll(garden);
  EXPECT_EQ(garden.Find(third).tree.num_expanded(), 30);
  EXPECT_EQ(garden.Find(first).tree.num_expanded(), 30) << "though it was asked before the sleeper";
  EXPECT_EQ(garden.Find(second).tree.num_expanded(), 0);
  EXPECT_EQ(garden.counters().num_felled, 1);
  garden.CheckIntegrity();
}

TEST_F(SmallGardenTest, TheTreeAskedForLongestAgoMakesRoom) {
  Garden garden = MakeGarden({.max_grown_nodes = 60, .min_path_chance = 0, .learns_chances = false});
  const Garden::PlantId old_one = garden.Open(kGreedy), new_one = garden.Open(kDrawn);
  Append(garden, old_one, Tokens("if x"));
  GrowAll(garden);
  EXPECT_EQ(garden.Find(old_one).tree.num_expanded(), 60);
  Append(garden, new_one, Tokens("while y"));
  GrowAll(garden);
  EXPECT_GE(garden.Find(new_one).tree.num_expanded(), 32) << "its share";
  EXPECT_GE(garden.counters().num_felled, 1);
  EXPECT_TRUE(garden.Find(old_one).tree.is_root_expanded());
  EXPECT_LE(garden.Find(old_one).tree.num_expanded(), 32) << "what the other leaves";
}

}  // namespace
}  // namespace foretoken::proposer
