// SPDX-License-Identifier: Apache-2.0
// Drawing from a row within AcceptTrees: the cases of the CPU's test on the CUDA backend. If this test fails, a GPU
// server draws wrong tokens.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/cuda/draw/accept_trees.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/draw_cases.h"

namespace foretoken::kernels::cuda {
namespace {

class DrawRowTest : public OnDevice {
 protected:
  // The row is that of the last node of a chain whose tokens are the path. All rows before it allow only one token.
  testing::DrawnToken Draw(const reference::DrawInputs& inputs, VerificationRule rule) {
    const auto num_tokens = static_cast<int32_t>(inputs.logits.size());
    std::vector<int32_t> token_ids = {0}, parents = {-1}, node_idx = {0};
    std::vector<float> logits;
    for (const int32_t id : inputs.path_token_ids) {
      if (id < 0 || id >= num_tokens) continue;
      logits.resize(logits.size() + num_tokens, -std::numeric_limits<float>::infinity());
      logits[logits.size() - num_tokens + id] = 0;
      parents.push_back(static_cast<int32_t>(parents.size()) - 1);
      token_ids.push_back(id);
      node_idx.push_back(static_cast<int32_t>(node_idx.size()));
    }
    std::vector<DrawnChildren> drawn;  // under rejection sampling the path consists of right guesses
    for (size_t node = 1; node < token_ids.size(); ++node) {
      drawn.push_back({.parent = parents[node], .children = {&node_idx[node], 1}});
    }
    logits.insert(logits.end(), inputs.logits.begin(), inputs.logits.end());
    std::vector<const uint32_t*> masks(inputs.mask.empty() ? 0 : token_ids.size());
    if (!masks.empty()) masks.back() = inputs.mask.data();
    const auto num_before = static_cast<uint32_t>(token_ids.size() - 1);
    const TreeToAccept tree{.token_ids = token_ids,
                            .parents = parents,
                            .context_len = inputs.t - num_before,
                            .sampling = inputs.sampling,
                            .counts = inputs.counts,
                            .bias = inputs.bias,
                            .masks = masks,
                            .rule = rule,
                            .num_rows = static_cast<int32_t>(token_ids.size()),
                            .drawn = drawn};
    AcceptedPath path;
    RunAcceptTrees({.logits = {logits.data(), DType::kF32, Shape(num_before + 1, num_tokens)},
                    .num_tokens = num_tokens,
                    .trees = {&tree, 1},
                    .paths = {&path, 1}});
    if (path.status != DrawStatus::kOk) return {path.status};
    EXPECT_EQ(path.token_ids.size(), token_ids.size());
    return {path.status, path.token_ids.back()};
  }

  testing::DrawOp op(VerificationRule rule = VerificationRule::kKeyedDraw) {
    return [this, rule](const reference::DrawInputs& inputs) { return Draw(inputs, rule); };
  }
};

TEST_F(DrawRowTest, EqualsTheReferenceUnderAllFiltersTogether) { testing::ExpectTheReferencesDraws(op(), 200); }
TEST_F(DrawRowTest, EqualsTheReferenceByCoin) {
  testing::ExpectTheReferencesDrawsByCoin(op(VerificationRule::kRejectionSampling), 100);
}
TEST_F(DrawRowTest, EqualsTheReferenceByCoinOnAHugeVocabulary) {
  testing::ExpectDrawsByCoinFromAHugeVocabulary(op(VerificationRule::kRejectionSampling), 8);
}
TEST_F(DrawRowTest, EqualsTheReferenceOnALargeVocabulary) {
  testing::ExpectTheReferencesDrawsOnALargeVocabulary(op(), 1);
}
TEST_F(DrawRowTest, BreaksTiesByTheLowestId) { testing::ExpectTiesToGoToTheLowestId(op()); }
TEST_F(DrawRowTest, DrawsFromARowOfOneValue) { testing::ExpectDrawsFromARowOfOneValue(op(), 2); }
TEST_F(DrawRowTest, SumsThatOverflowDoNotMakeARowNonFinite) { testing::ExpectSumsThatOverflowToBeFinite(op()); }
TEST_F(DrawRowTest, FindsTheMaximumInEveryPlace) { testing::ExpectTheMaximumInEveryPlace(op(), 10); }
TEST_F(DrawRowTest, ReportsNonFiniteLogitsWhereverTheyStand) { testing::ExpectNonFiniteLogitsToShow(op()); }
TEST_F(DrawRowTest, ReportsAnEmptySupport) { testing::ExpectAnEmptySupportToShow(op()); }
TEST_F(DrawRowTest, IgnoresIdsOutsideTheVocabulary) { testing::ExpectIdsOutsideTheVocabularyToBeIgnored(op()); }

}  // namespace
}  // namespace foretoken::kernels::cuda
