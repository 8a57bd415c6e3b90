// SPDX-License-Identifier: Apache-2.0
// The mailbox of a session at the draft proposer. If this test fails, a verifier that opens and closes sessions fills
// the proposer's memory while a pass runs.
#include "proposer_service/draft/draft_session.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/cases/allow_ids.h"

namespace foretoken::proposer {
namespace {

TEST(DraftMailbox, KeepsNoTokensMasksAndTreesOfAnEndedSession) {
  constexpr int32_t kNumTokens = 500;
  const auto mailbox = std::make_shared<DraftMailbox>(SessionIntroduction{}, [](auto) {});
  speculation::TokenTree chain;
  for (int32_t i = 0; i <= kNumTokens; ++i) chain.Append({.token_id = 7, .parent = i - 1, .chance = 1});
  mailbox->Publish({.tree = chain});
  mailbox->Append(std::vector<int32_t>(kNumTokens, 7));
  mailbox->AppendFeatures(0, std::vector<uint16_t>(kNumTokens), mailbox);
  mailbox->Want({.node_budget = 4, .allowed = testing::AllowIds({7})}, {}, mailbox);
  EXPECT_EQ(mailbox->Take(4).tree.num_nodes(), 1) << "the end of the chain";
  mailbox->Close(mailbox);
  EXPECT_EQ(mailbox->Take(4).tree.num_nodes(), 0);
  const DraftMailbox::Update update = mailbox->Collect();
  EXPECT_TRUE(update.is_closed);
  EXPECT_TRUE(update.tree_request.allowed.allow_any());
  EXPECT_EQ(update.token_ids.capacity(), 0);
  EXPECT_EQ(update.features.capacity(), 0);
}

speculation::TokenTree ChildrenOfTheRoot(int32_t num_children, bool are_sampled) {
  speculation::TokenTree tree;
  speculation::SampledChildren sampled{.draft = std::make_shared<speculation::DraftDistribution>()};
  for (int32_t i = 0; i < num_children; ++i) sampled.children.push_back(tree.Append({.token_id = i, .chance = 0.25}));
  if (are_sampled) tree.sampled.push_back(std::move(sampled));
  return tree;
}

// The size of a sampled tree depends on the tokens that were drawn, so the mailbox must not keep a tree for its size.
TEST(DraftMailbox, ANewTreeReplacesALargerSampledOne) {
  const auto mailbox = std::make_shared<DraftMailbox>(SessionIntroduction{}, [](auto) {});
  for (const int32_t num_children : {3, 2}) mailbox->Publish({.tree = ChildrenOfTheRoot(num_children, true)});
  EXPECT_EQ(mailbox->Take(4).tree.num_nodes(), 2);
}

TEST(DraftMailbox, KeepsTheLargerTreeOfGuesses) {
  const auto mailbox = std::make_shared<DraftMailbox>(SessionIntroduction{}, [](auto) {});
  for (const int32_t num_children : {3, 2}) mailbox->Publish({.tree = ChildrenOfTheRoot(num_children, false)});
  EXPECT_EQ(mailbox->Take(4).tree.num_nodes(), 3);
}

}  // namespace
}  // namespace foretoken::proposer
