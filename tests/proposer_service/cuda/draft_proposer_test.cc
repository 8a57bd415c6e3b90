// SPDX-License-Identifier: Apache-2.0
// The draft proposer on the CUDA backend. It runs the same code as on the CPU and must make the same guesses, across
// advances too. If this test fails, a draft model on a GPU proposes worse tokens than on a CPU.
#include "proposer_service/draft/draft_proposer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/cases/tree_columns.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;

// A session's trees: after a prompt, after a token that the first tree guessed, and after tokens that no tree guessed.
std::vector<TokenTree> TreesOn(const std::string& device) {
  telemetry::Metrics metrics;
  DraftProposer draft(testing::LoadDraftModel({.num_blocks = 32, .device = device}), {.max_grown_nodes = 12}, metrics);
  const std::unique_ptr<Session> session = draft.Open({.seed = 5, .temperature = 0});
  std::vector<TokenTree> trees;
  const auto say = [&](const std::vector<int32_t>& token_ids) {
    session->Append(token_ids);
    session->Want({.node_budget = 8});
    while (draft.Step()) continue;
    draft.forest().CheckIntegrity();
    const ProposalRequest request = {.session = session.get(), .node_budget = 8};
    trees.push_back(draft.Propose({&request, 1}).front());
  };
  say({17, 300, 25, 40, 300, 25});
  say({trees.front().nodes[0].token_id});
  say({4000, 4001});
  return trees;
}

// The two backends differ by rounding only, and rounding does not change the likeliest tokens of a trained model.
TEST(CudaDraftProposer, GuessesWhatTheCpuGuesses) {
  const std::vector<TokenTree> cuda = TreesOn("cuda"), cpu = TreesOn("cpu");
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_EQ(cuda[i].position, cpu[i].position);
    EXPECT_EQ(testing::TokenIds(cuda[i]), testing::TokenIds(cpu[i]));
    EXPECT_EQ(testing::Parents(cuda[i]), testing::Parents(cpu[i]));
    ASSERT_EQ(cpu[i].num_nodes(), 8);
    for (int32_t node = 0; node < cpu[i].num_nodes(); ++node) {
      EXPECT_NEAR(cuda[i].nodes[node].chance, cpu[i].nodes[node].chance, 0.02f);
    }
  }
}

}  // namespace
}  // namespace foretoken::proposer
