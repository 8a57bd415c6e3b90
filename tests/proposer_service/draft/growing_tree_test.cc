// SPDX-License-Identifier: Apache-2.0
// If these tests fail, a draft proposer grows the wrong nodes, loses good guesses after an advance, or leaks K/V slots.
#include "proposer_service/draft/growing_tree.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/cases/tree_columns.h"

namespace foretoken::proposer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Child = GrowingTree::Child;

int32_t ExpandBest(GrowingTree& tree, int32_t slot, const std::vector<Child>& children) {
  const int32_t node_idx = tree.TakeBest();
  tree.SetSlot(node_idx, slot);
  tree.Expand(node_idx, children);
  return node_idx;
}

// Below the root: 1 (.6) and 2 (.29). Below 1: 3 (.5) and 4 (.4). Below 3: 5 (.9). Slots 101 and 102.
GrowingTree SmallTree() {
  GrowingTree tree;
  tree.Expand(GrowingTree::kRoot, std::vector<Child>{{1, 0, .6f}, {2, 0, .29f}});
  ExpandBest(tree, 101, {{3, 0, .5f}, {4, 0, .4f}});
  ExpandBest(tree, 102, {{5, 0, .9f}});
  tree.CheckIntegrity();
  return tree;
}

TEST(GrowingTree, TheLikeliestFrontierNodeIsTakenFirst) {
  GrowingTree tree = SmallTree();
  ASSERT_TRUE(tree.BestWorth().has_value());
  EXPECT_FLOAT_EQ(*tree.BestWorth(), .29f);
  EXPECT_EQ(tree.node(tree.TakeBest()).child.token_id, 2);
  EXPECT_EQ(tree.node(tree.TakeBest()).child.token_id, 5);
  EXPECT_EQ(tree.node(tree.TakeBest()).child.token_id, 4);
  EXPECT_FALSE(tree.BestWorth().has_value());
}

TEST(GrowingTree, NodesAtTheMaxDepthAreNotTaken) {
  GrowingTree tree = SmallTree();
  tree.SetMaxDepth(2);
  EXPECT_EQ(tree.node(tree.TakeBest()).child.token_id, 2);
  EXPECT_FALSE(tree.BestWorth().has_value()) << "tokens 4 and 5 stand at depths 2 and 3";
  tree.CheckIntegrity();
  // One token of the path is committed.
  tree = SmallTree();
  tree.SetMaxDepth(2);
  tree.Advance(std::vector<int32_t>{1});
  EXPECT_EQ(tree.node(tree.TakeBest()).child.token_id, 4);
  EXPECT_FALSE(tree.BestWorth().has_value()) << "token 5 stands at depth 2 now";
  tree.CheckIntegrity();
}

TEST(GrowingTree, OtherChildrenOfTheRootKeepTheNodesBelowTheOldOnes) {
  GrowingTree tree = SmallTree();
  const std::vector<Child> children = {{1, 0, .5f}, {7, 0, .3f}};
  EXPECT_THAT(tree.ReplaceRootChildren(children), IsEmpty());
  tree.CheckIntegrity();
  EXPECT_EQ(tree.num_expanded(), 2);
  EXPECT_THAT(testing::TokenIds(tree.Snapshot(1, 10)), ElementsAre(1, 7, 3, 5, 4));
  EXPECT_THAT(tree.PathSlots(tree.node(1).first_child), ElementsAre(101, 102));
  EXPECT_THAT(tree.ReplaceRootChildren(std::vector<Child>{{2, 0, .9f}}), UnorderedElementsAre(101, 102));
  tree.CheckIntegrity();
  EXPECT_THAT(tree.ReplaceRootChildren({}), IsEmpty());
  tree.CheckIntegrity();
  EXPECT_EQ(tree.num_nodes(), 1);
}

// Two nodes are sent: 1 and 3. The next root is 2, 4 or a child of 3. The nodes below these come last.
TEST(GrowingTree, PossibleNextRootsAreTakenBeforeDeeperNodes) {
  GrowingTree tree = SmallTree();
  tree.SetNumSent(2);
  tree.CheckIntegrity();
  EXPECT_FLOAT_EQ(*tree.BestWorth(), .29f);
  ExpandBest(tree, 103, {{6, 0, .95f}});
  ExpandBest(tree, 104, {{7, 0, .9f}});  // below 5
  std::vector<int32_t> order;
  while (tree.BestWorth().has_value()) order.push_back(tree.node(tree.TakeBest()).child.token_id);
  EXPECT_THAT(order, ElementsAre(4, 6, 7)) << "with path chances .24, .2755 and .243";
}

TEST(GrowingTree, ANodeIsWorthLessOnceItsParentIsNotSent) {
  GrowingTree tree(2);
  tree.Expand(GrowingTree::kRoot, std::vector<Child>{{1, 0, .5f}, {2, 0, .4f}});
  const int32_t best = tree.TakeBest();
  ExpandBest(tree, 101, {{3, 0, .9f}});  // below 2, which is among the best two
  EXPECT_FLOAT_EQ(*tree.BestWorth(), .36f);
  tree.SetSlot(best, 102);
  tree.Expand(best, std::vector<Child>{{4, 0, .95f}});  // better than 2
  tree.CheckIntegrity();
  EXPECT_EQ(tree.node(tree.TakeBest()).child.token_id, 4);
  EXPECT_FLOAT_EQ(*tree.BestWorth(), .036f);
}

TEST(GrowingTree, ASnapshotHoldsTheBestNodesInTheirOrder) {
  const speculation::TokenTree tree = SmallTree().Snapshot(7, 4);
  EXPECT_EQ(tree.position, 7);
  EXPECT_THAT(testing::TokenIds(tree), ElementsAre(1, 3, 2, 5));
  EXPECT_THAT(testing::Parents(tree), ElementsAre(-1, 0, -1, 1));
  EXPECT_TRUE(speculation::Validate(tree, 10, 4).ok());
}

TEST(GrowingTree, AnAdvanceKeepsTheNodesBelowItsPath) {
  GrowingTree tree = SmallTree();
  const GrowingTree::Advanced advanced = tree.Advance(std::vector<int32_t>{1});
  tree.CheckIntegrity();
  EXPECT_THAT(advanced.path_slots, ElementsAre(101));
  EXPECT_THAT(advanced.freed_slots, IsEmpty());
  EXPECT_TRUE(tree.is_root_expanded());
  EXPECT_EQ(tree.num_expanded(), 1);
  const speculation::TokenTree snapshot = tree.Snapshot(8, 10);
  EXPECT_THAT(testing::TokenIds(snapshot), ElementsAre(3, 5, 4));
  EXPECT_FLOAT_EQ(*tree.BestWorth(), .45f) << "chances count from the new root";
}

TEST(GrowingTree, AnAdvanceOntoALeafKeepsThePathAndStartsAnew) {
  GrowingTree tree = SmallTree();
  const GrowingTree::Advanced advanced = tree.Advance(std::vector<int32_t>{1, 4});
  tree.CheckIntegrity();
  EXPECT_THAT(advanced.path_slots, ElementsAre(101));
  EXPECT_THAT(advanced.freed_slots, ElementsAre(102));
  EXPECT_FALSE(tree.is_root_expanded());
  EXPECT_EQ(tree.num_nodes(), 1);
}

TEST(GrowingTree, AnAdvanceThatLeavesTheTreeKeepsThePathUpToThere) {
  GrowingTree tree = SmallTree();
  const GrowingTree::Advanced advanced = tree.Advance(std::vector<int32_t>{1, 9, 3});
  tree.CheckIntegrity();
  EXPECT_THAT(advanced.path_slots, ElementsAre(101));
  EXPECT_THAT(advanced.freed_slots, ElementsAre(102));
  EXPECT_FALSE(tree.is_root_expanded());
}

TEST(GrowingTree, AClearedTreeKeepsTheRootsChildren) {
  GrowingTree tree = SmallTree();
  EXPECT_THAT(tree.Clear(), UnorderedElementsAre(101, 102));
  tree.CheckIntegrity();
  EXPECT_THAT(testing::TokenIds(tree.Snapshot(0, 10)), ElementsAre(1, 2));
  EXPECT_FLOAT_EQ(*tree.BestWorth(), .6f);
}

// Every node's tokens from the root on, and its chance.
std::map<std::vector<int32_t>, float> PathsOf(const speculation::TokenTree& tree) {
  std::vector<std::vector<int32_t>> paths;
  std::map<std::vector<int32_t>, float> chances;
  for (const speculation::TreeNode& node : tree.nodes) {
    std::vector<int32_t> path;
    if (node.parent != speculation::kRootParent) path = paths[node.parent];
    path.push_back(node.token_id);
    chances[path] = node.chance;
    paths.push_back(std::move(path));
  }
  return chances;
}

// Random growth and random advances: no slot is lost or held twice, and the advanced tree has the nodes of its
// re-rooted snapshot.
TEST(GrowingTree, StaysWholeUnderAnyGrowthAndAdvance) {
  testing::RandomValues random(3);
  for (int round = 0; round < 200; ++round) {
    GrowingTree tree(random.Below(5));
    std::vector<int32_t> free_slots;
    for (int32_t slot = 0; slot < 60; ++slot) free_slots.push_back(slot);
    for (int step = 0; step < 12; ++step) {
      const auto children = [&] {
        std::vector<Child> made;
        for (int32_t token = 0; token < random.Below(4); ++token) {
          made.push_back({token, 0, static_cast<float>(0.01 + 0.3 * random.Uniform())});
        }
        return made;
      };
      if (!tree.is_root_expanded()) tree.Expand(GrowingTree::kRoot, children());
      for (int32_t i = random.Below(10); i > 0 && tree.BestWorth().has_value() && !free_slots.empty(); --i) {
        ExpandBest(tree, free_slots.back(), children());
        free_slots.pop_back();
      }
      tree.CheckIntegrity();
      std::vector<int32_t> committed;
      for (int32_t i = random.Below(4); i >= 0; --i) committed.push_back(random.Below(3));
      const speculation::TokenTree expected = speculation::ReRoot(tree.Snapshot(0, 1000), committed);
      const GrowingTree::Advanced advanced = tree.Advance(committed);
      tree.CheckIntegrity();
      for (const auto* slots : {&advanced.path_slots, &advanced.freed_slots}) {
        free_slots.insert(free_slots.end(), slots->begin(), slots->end());
      }
      ASSERT_EQ(free_slots.size() + tree.num_expanded(), 60);
      const speculation::TokenTree got = tree.Snapshot(committed.size(), 1000);
      ASSERT_EQ(PathsOf(got), PathsOf(expected));
      if (tree.is_root_expanded()) {
        ASSERT_EQ(advanced.path_slots.size(), committed.size());
      }
    }
  }
}

}  // namespace
}  // namespace foretoken::proposer
