// SPDX-License-Identifier: Apache-2.0
// The cases of the CPU's test on the CUDA backend. If this test fails, top_k, top_p or min_p keep wrong tokens on a
// GPU.
#include "kernels/cuda/draw/filter_cut.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/draw/scan_rows.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/cut_cases.h"

namespace foretoken::kernels::cuda {
namespace {

class FilterCutTest : public OnDevice {
 protected:
  FilterCut Find(const std::vector<float>& row, const SamplingParams& sampling) {
    const auto num_tokens = static_cast<int32_t>(row.size());
    const Buffer logits = device().Allocate(row.size() * sizeof(float));
    device().Copy(logits.get(), row.data(), row.size() * sizeof(float), CopyKind::kToDevice);
    RowTask task = TaskOf(sampling, num_tokens);
    task.logits = static_cast<const float*>(logits.get());
    StagedUpload upload;
    const RowBatch batch({task}, num_tokens, upload, device().stream());
    upload.Send(device());
    ScanRows(batch);
    MergeScans(batch);
    FindCuts(batch);
    RowState state;
    device().Copy(&state, batch.work().states, sizeof(state), CopyKind::kToHost);
    device().Synchronize();
    EXPECT_EQ(state.status, DrawStatus::kOk);
    return state.cut;
  }

  testing::FindCutOp op() {
    return [this](const std::vector<float>& row, const SamplingParams& sampling) { return Find(row, sampling); };
  }
};

TEST_F(FilterCutTest, CutsRowsOfEveryKindAndLengthAsSortingDoes) {
  testing::ExpectCutsAsBySorting(op(), std::vector<size_t>{1, 2500}, {{0, 16}, {0.3f, 0.999f, 1.0f}});
}
TEST_F(FilterCutTest, KeepsTheLowestIdsOfTheTokensThatTieAtTheCut) {
  testing::ExpectTiesAtTheCutToGoToTheLowestIds(op());
}
TEST_F(FilterCutTest, MinPKeepsTheLeastValueThatIsLikelyEnough) {
  testing::ExpectMinPToKeepTheLeastValueThatIsLikelyEnough(op(), 300);
}
TEST_F(FilterCutTest, MinPTakesNoLongerWhereItsBoundIsZero) { testing::ExpectMinPWhoseBoundIsZero(op()); }
TEST_F(FilterCutTest, MinPOfATinyShareKeepsAll) { testing::ExpectMinPOfATinyShareToKeepAll(op()); }
TEST_F(FilterCutTest, TopPNextToOneKeepsAllLikelyTokens) {
  testing::ExpectTopPNextToOneToKeepAllLikelyTokens(op(), 10);
}

}  // namespace
}  // namespace foretoken::kernels::cuda
