// SPDX-License-Identifier: Apache-2.0
// Properties of every token tree, checked on random trees against slow and obvious code. If this test fails, guesses
// are lost or put at wrong places, or rejection sampling is not exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "common/speculation/token_tree.h"

namespace foretoken::speculation {
namespace {

constexpr int32_t kNumTokens = 12;  // few, so that trees overlap
using Path = std::vector<int32_t>;  // the tokens from the root's child down to a node

struct PathNode {
  float chance = 0;
  uint32_t proposers = 0;
  bool operator==(const PathNode&) const = default;
};

TokenTree RandomTree(std::mt19937& random, int32_t max_nodes, uint32_t proposers) {
  TokenTree tree{.position = 5};
  std::set<std::pair<int32_t, int32_t>> edges;
  const int32_t num_tries = std::uniform_int_distribution<int32_t>(0, max_nodes)(random);
  for (int32_t i = 0; i < num_tries; ++i) {
    const int32_t parent = std::uniform_int_distribution<int32_t>(-1, tree.num_nodes() - 1)(random);
    const int32_t token = std::uniform_int_distribution<int32_t>(0, kNumTokens - 1)(random);
    if (!edges.emplace(parent, token).second) continue;
    tree.Append({.token_id = token,
                 .parent = parent,
                 .chance = std::uniform_int_distribution<int32_t>(1, 8)(random) / 8.0f,  // ties are common
                 .proposers = proposers});
  }
  return tree;
}

Path PathOf(const TokenTree& tree, int32_t node_idx) {
  Path path;
  for (; node_idx != kRootParent; node_idx = tree.nodes[node_idx].parent) path.push_back(tree.nodes[node_idx].token_id);
  return Path(path.rbegin(), path.rend());
}

std::map<Path, PathNode> Paths(const TokenTree& tree) {
  std::map<Path, PathNode> paths;
  for (int32_t i = 0; i < tree.num_nodes(); ++i)
    paths[PathOf(tree, i)] = {tree.nodes[i].chance, tree.nodes[i].proposers};
  return paths;
}

TEST(TokenTree, ReRootKeepsExactlyThePathsThatBeginWithTheCommittedTokens) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const TokenTree tree = RandomTree(random, 60, 1);
    Path committed;
    if (tree.num_nodes() > 0 && round % 4 != 0) committed = PathOf(tree, random() % tree.num_nodes());
    if (round % 3 == 0) committed.push_back(random() % kNumTokens);
    const TokenTree below = ReRoot(tree, committed);
    EXPECT_EQ(below.position, tree.position + committed.size());
    EXPECT_TRUE(Validate(below, kNumTokens, kMaxTreeNodes).ok());
    std::map<Path, PathNode> want;
    for (const auto& [path, node] : Paths(tree)) {
      if (path.size() > committed.size() && std::equal(committed.begin(), committed.end(), path.begin())) {
        want[Path(path.begin() + committed.size(), path.end())] = node;
      }
    }
    EXPECT_EQ(Paths(below), want);
  }
}

TEST(TokenTree, ReRootInTwoStepsIsReRootInOne) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const TokenTree tree = RandomTree(random, 60, 1);
    if (tree.num_nodes() == 0) continue;
    const Path path = PathOf(tree, random() % tree.num_nodes());
    const std::span<const int32_t> committed(path);
    const size_t cut = random() % (path.size() + 1);
    EXPECT_EQ(Paths(ReRoot(ReRoot(tree, committed.first(cut)), committed.subspan(cut))),
              Paths(ReRoot(tree, committed)));
  }
}

TEST(TokenTree, MergeIsTheUnionOfPathsWithTheLargestChanceAndAllProposers) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const std::vector<TokenTree> trees = {RandomTree(random, 40, 1), RandomTree(random, 40, 2),
                                          RandomTree(random, 40, 4)};
    std::map<Path, PathNode> want;
    for (const TokenTree& tree : trees) {
      for (const auto& [path, node] : Paths(tree)) {
        want[path].chance = std::max(want[path].chance, node.chance);
        want[path].proposers |= node.proposers;
      }
    }
    const TokenTree merged = Merge(trees);
    EXPECT_TRUE(Validate(merged, kNumTokens, kMaxTreeNodes).ok());
    EXPECT_EQ(Paths(merged), want);
  }
}

TEST(TokenTree, BestNodesHaveTheLargestPathChancesAndKeepTheirOrder) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    const TokenTree tree = RandomTree(random, 60, 1);
    const int32_t max_nodes = random() % 20;
    const TokenTree best = BestNodes(tree, max_nodes);
    ASSERT_EQ(best.num_nodes(), std::min(max_nodes, tree.num_nodes()));
    EXPECT_TRUE(Validate(best, kNumTokens, kMaxTreeNodes).ok());
    std::vector<float> want = PathChances(tree);
    std::sort(want.rbegin(), want.rend());
    want.resize(best.num_nodes());
    std::vector<float> got = PathChances(best);
    std::sort(got.rbegin(), got.rend());
    EXPECT_EQ(got, want);
    // Order kept: the chosen paths appear in the tree's own order.
    int32_t next = 0;
    for (int32_t i = 0; i < tree.num_nodes() && next < best.num_nodes(); ++i) {
      if (PathOf(tree, i) == PathOf(best, next)) ++next;
    }
    EXPECT_EQ(next, best.num_nodes());
  }
}

// Every child of some nodes in one group, in a random order.
TokenTree RandomSampledTree(std::mt19937& random, int32_t max_nodes, uint32_t proposers) {
  TokenTree tree = RandomTree(random, max_nodes, proposers);
  for (int32_t parent = -1; parent < tree.num_nodes(); ++parent) {
    SampledChildren group{.parent = parent, .draft = std::make_shared<DraftDistribution>()};
    for (int32_t i = 0; i < tree.num_nodes(); ++i) {
      if (tree.nodes[i].parent == parent) group.children.push_back(i);
    }
    std::shuffle(group.children.begin(), group.children.end(), random);
    if (!group.children.empty() && random() % 3 != 0) tree.sampled.push_back(std::move(group));
  }
  return tree;
}

// The sampled groups: by the parent's path, the children's tokens in their order and their distribution.
using Groups = std::multimap<Path, std::pair<std::vector<int32_t>, const DraftDistribution*>>;

Groups GroupsOf(const TokenTree& tree) {
  Groups groups;
  for (const SampledChildren& group : tree.sampled) {
    std::vector<int32_t> tokens;
    for (const int32_t child : group.children) {
      EXPECT_EQ(tree.nodes[child].parent, group.parent);
      tokens.push_back(tree.nodes[child].token_id);
    }
    groups.emplace(PathOf(tree, group.parent), std::pair(tokens, group.draft.get()));
  }
  return groups;
}

TEST(TokenTree, ReRootKeepsAllSampledChildrenOfANodeOrNone) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const TokenTree tree = RandomSampledTree(random, 60, 1);
    if (tree.num_nodes() == 0) continue;
    const Path committed = PathOf(tree, random() % tree.num_nodes());
    Groups want;
    for (const auto& [path, group] : GroupsOf(tree)) {
      if (path.size() >= committed.size() && std::equal(committed.begin(), committed.end(), path.begin())) {
        want.emplace(Path(path.begin() + committed.size(), path.end()), group);
      }
    }
    EXPECT_EQ(GroupsOf(ReRoot(tree, committed)), want);
  }
}

TEST(TokenTree, CutDepthKeepsAllSampledChildrenOfANodeOrNone) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const TokenTree tree = RandomSampledTree(random, 60, 1);
    const size_t max_depth = random() % 5;
    Groups want;
    for (const auto& [path, group] : GroupsOf(tree)) {
      if (path.size() < max_depth) want.emplace(path, group);
    }
    EXPECT_EQ(GroupsOf(CutDepth(tree, static_cast<int32_t>(max_depth))), want);
  }
}

TEST(TokenTree, MergeTestsTheChildrenOfANodeOneTreeAfterAnother) {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    const std::vector<TokenTree> trees = {RandomSampledTree(random, 40, 1), RandomTree(random, 40, 2),
                                          RandomSampledTree(random, 40, 4)};
    Groups want;  // equal keys keep the order of insertion
    for (const TokenTree& tree : trees) {
      for (const auto& entry : GroupsOf(tree)) want.insert(entry);
    }
    EXPECT_EQ(GroupsOf(Merge(trees)), want);
  }
}

TEST(TokenTree, TheBetterNodesOfANodeDoNotDependOnItsDescendants) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    TokenTree tree = RandomTree(random, 60, 1);
    if (tree.num_nodes() == 0) continue;
    const auto node = static_cast<int32_t>(random() % tree.num_nodes());
    const auto before = [&] {
      const std::vector<int32_t> best = BestNodeIdx(tree, tree.num_nodes());
      return std::vector<int32_t>(best.begin(), std::find(best.begin(), best.end(), node));
    };
    const std::vector<int32_t> want = before();
    std::vector<bool> is_below(tree.num_nodes());
    for (int32_t i = node + 1; i < tree.num_nodes(); ++i) {
      is_below[i] = tree.nodes[i].parent == node || (tree.nodes[i].parent > node && is_below[tree.nodes[i].parent]);
      if (is_below[i]) tree.nodes[i].chance = random() % 2 == 0 ? 1.0f : 0.125f;
    }
    EXPECT_EQ(before(), want);
  }
}

TEST(TokenTree, BestNodesHandlesPathChancesThatVanish) {
  TokenTree chain{.position = 1};
  for (int32_t i = 0; i < kMaxTreeNodes; ++i) {
    chain.Append({.parent = i - 1, .chance = std::numeric_limits<float>::min(), .proposers = 1});
  }
  const TokenTree best = BestNodes(chain, kMaxTreeNodes - 1);
  EXPECT_TRUE(Validate(best, 1, kMaxTreeNodes).ok());
  EXPECT_EQ(best.num_nodes(), kMaxTreeNodes - 1);
}

TEST(TokenTree, NoticesAParentBehindItsChild) {
  EXPECT_TRUE(HasParentsFirst({.nodes = {{.parent = kRootParent}, {.parent = 0}, {.parent = kRootParent}}}));
  EXPECT_FALSE(HasParentsFirst({.nodes = {{.parent = kRootParent}, {.parent = 1}}}));
  EXPECT_FALSE(HasParentsFirst({.nodes = {{.parent = 1}, {.parent = kRootParent}}}));
  EXPECT_FALSE(HasParentsFirst({.nodes = {{.parent = kRootParent - 1}}}));
}

}  // namespace
}  // namespace foretoken::speculation
