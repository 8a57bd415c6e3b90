// SPDX-License-Identifier: Apache-2.0
// Runs CUDA ops on arguments whose pointers are all the host's: it copies inputs to the device, runs the op, and copies
// results back. So a test reads like one for the CPU, and tests/reference takes the same arguments.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/weight.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// Without a device, its tests are skipped with the reason.
class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override;

  Device& device() { return *device_; }

  std::unique_ptr<CudaWeight> Prepare(const ConstTensorView& part, const Quantization& quantization = {}) {
    return PrepareWeight({.parts = {&part, 1}, .quantization = quantization, .release = nullptr}, device());
  }
  // [N, K], the values that the kernels read.
  std::vector<float> DownloadWeight(const CudaWeight& weight);

  // `weight` is on the device already.
  void RunEmbed(EmbedArgs args);
  void RunMatMul(MatMulArgs args, void (*matmul)(const MatMulArgs&, cudaStream_t) = MatMul);
  void RunRmsNorm(RmsNormArgs args);
  void RunMeanSquares(MeanSquaresArgs args);
  void RunGlu(GluArgs args);
  void RunRopeStoreKv(RopeStoreKvArgs args, int32_t num_positions);
  void RunAttention(AttentionArgs args, SplitWork work);
  void RunMoveKv(MoveKvArgs args);
  // Results are complete when these return, because they synchronise.
  void RunAcceptTrees(AcceptTreesArgs args);
  void RunBranchRows(BranchRowsArgs args);
  void RunScoreTokens(ScoreTokensArgs args);
  void RunActivate(ActivateArgs args);
  void RunSumRanks(SumRanksArgs args);
  void RunJoinColumns(JoinColumnsArgs args);
  void RunCopyRows(CopyRowsArgs args);
  void RunCapLogits(CapLogitsArgs args);
  void RunSpreadLogits(SpreadLogitsArgs args);

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace foretoken::kernels::cuda
