// SPDX-License-Identifier: Apache-2.0
// The trees that rejection sampling tests. If this test fails, the output of rejection sampling no longer follows the
// model's distribution.
#include "common/speculation/tested_tree.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

using speculation::DraftDistribution;
using speculation::TokenTree;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Below the root, one proposer sampled 12 and 10, another sampled 10; 13 and 12 were guessed. Below 12, 20 was sampled;
// below 20, 30 was.
TokenTree Guess() {
  const auto draft = std::make_shared<DraftDistribution>(DraftDistribution{.token_ids = {10, 12}, .probs = {.5f, .5f}});
  return {.position = 3,
          .nodes = {{12, -1, .9f, 1 | 4}, {13, -1, .2f, 4}, {10, -1, .3f, 1 | 2}, {20, 0, .8f, 1}, {30, 3, .7f, 1}},
          .sampled = {{.parent = -1, .children = {0, 2}, .draft = draft},
                      {.parent = 0, .children = {3}, .draft = draft},
                      {.parent = 3, .children = {4}, .draft = draft},
                      {.parent = -1, .children = {2}, .draft = draft}}};
}

TEST(TestedTree, WithoutAGuessIsTheRoot) {
  const TestedTree tested = MakeTestedTree(7, nullptr, {});
  EXPECT_THAT(tested.token_ids, ElementsAre(7));
  EXPECT_THAT(tested.parents, ElementsAre(-1));
  EXPECT_THAT(tested.groups, IsEmpty());
}

TEST(TestedTree, WithoutRowsHasTheRootsChildrenAllTheSame) {
  const TokenTree guess = Guess();
  const TestedTree tested = MakeTestedTree(7, &guess, {});
  EXPECT_THAT(tested.token_ids, ElementsAre(7, 12, 13, 10));
  EXPECT_THAT(tested.parents, ElementsAre(-1, 0, 0, 0));
  ASSERT_EQ(tested.groups.size(), 3);
  EXPECT_THAT(tested.groups[0].children, ElementsAre(1, 3));
  EXPECT_THAT(tested.groups[0].draft_token_ids, ElementsAre(10, 12));
  EXPECT_THAT(tested.groups[1].children, ElementsAre(3));
  EXPECT_THAT(tested.groups[2].children, ElementsAre(1, 2));
  EXPECT_THAT(tested.groups[2].draft_probs, IsEmpty());
}

TEST(TestedTree, PutsNodesWithRowsFirstAndTheirChildrenBehind) {
  const TokenTree guess = Guess();
  const int32_t rows[] = {0, 2};
  const TestedTree tested = MakeTestedTree(7, &guess, rows);
  EXPECT_THAT(tested.token_ids, ElementsAre(7, 12, 10, 13, 20)) << "30's parent has no row";
  EXPECT_THAT(tested.parents, ElementsAre(-1, 0, 0, 0, 1));
  ASSERT_EQ(tested.groups.size(), 4);
  EXPECT_THAT(tested.groups[0].children, ElementsAre(1, 2)) << "in the order of sampling";
  EXPECT_THAT(tested.groups[1].children, ElementsAre(2)) << "one proposer's after another's";
  EXPECT_THAT(tested.groups[2].children, ElementsAre(1, 3)) << "12 was guessed, too";
  EXPECT_EQ(tested.groups[3].parent, 1);
  EXPECT_THAT(tested.groups[3].children, ElementsAre(4));
}

TEST(TestedTree, AGroupOfGuessesDoesNotDependOnTheSampledTokens) {
  const auto draft = std::make_shared<DraftDistribution>(DraftDistribution{.token_ids = {10, 11}, .probs = {.5f, .5f}});
  const TokenTree guessed = {.position = 3, .nodes = {{11, -1, .5f, 2}}};
  for (const int32_t token_id : {10, 11}) {
    const TokenTree sampled = {
        .position = 3, .nodes = {{token_id, -1, .5f, 1}}, .sampled = {{.parent = -1, .children = {0}, .draft = draft}}};
    const TokenTree merged = speculation::Merge(std::vector<TokenTree>{sampled, guessed});
    EXPECT_EQ(MakeTestedTree(7, &merged, {}).groups.size(), 2);
  }
}

TEST(TestedTree, MayBeMoved) {
  const TokenTree guess = Guess();
  TestedTree tested = MakeTestedTree(7, &guess, {});
  const TestedTree moved = std::move(tested);
  EXPECT_EQ(moved.groups[0].children.data(), moved.children.data());
}

}  // namespace
}  // namespace foretoken::verifier
