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
#include "kernels/cuda/matmul/matmul_skinny.h"
#include "kernels/cuda/matmul/matmul_tiled.h"
#include "kernels/cuda/matmul/weight.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

using MatMulKernel = void (*)(const MatMulArgs&, cudaStream_t);

template <MatrixUnit kUnit>
void Skinny(const MatMulArgs& args, cudaStream_t stream) {
  MatMulSkinny(args, kUnit, stream);
}
template <MatrixUnit kUnit>
void Tiled(const MatMulArgs& args, cudaStream_t stream) {
  MatMulTiled(args, kUnit, stream);
}

// Without a device, its tests are skipped with the reason.
class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override;

  Device& device() { return *device_; }

  std::unique_ptr<CudaWeight> Prepare(const ConstTensorView& part, const Quantization& quantization = {}) {
    return PrepareWeight({.parts = {&part, 1}, .quantization = quantization, .release = nullptr}, device());
  }
  // The kernels of a product that the device can run.
  std::vector<MatMulKernel> MatMulKernels() {
    std::vector<MatMulKernel> kernels = {Skinny<MatrixUnit::kWarps>, Tiled<MatrixUnit::kWarps>};
    if (device().facts().has_group_mma) {
      kernels.insert(kernels.end(), {Skinny<MatrixUnit::kGroups>, Tiled<MatrixUnit::kGroups>});
    }
    return kernels;
  }
  // [N, K], the values that the kernels read.
  std::vector<float> DownloadWeight(const CudaWeight& weight);

  // `weight` is on the device already.
  void RunEmbed(EmbedArgs args);
  void RunMatMul(MatMulArgs args, MatMulKernel matmul = MatMul);
  void RunRmsNorm(RmsNormArgs args);
  void RunMeanSquares(MeanSquaresArgs args);
  void RunGlu(GluArgs args);
  void RunRopeStoreKv(RopeStoreKvArgs args, int32_t num_positions);
  void RunAttention(AttentionArgs args, int32_t blocks_per_piece);
  void RunMoveKv(MoveKvArgs args);
  // Results are complete when these return, because they synchronise.
  void RunAcceptTrees(AcceptTreesArgs args);
  void RunBranchRows(BranchRowsArgs args);
  void RunScoreTokens(ScoreTokensArgs args);
  void RunActivate(ActivateArgs args);
  void RunRecurrentCell(RecurrentCellArgs args);
  void RunSumRanks(SumRanksArgs args);
  void RunJoinColumns(JoinColumnsArgs args);
  void RunCopyRows(CopyRowsArgs args);
  void RunCapLogits(CapLogitsArgs args);
  void RunSpreadLogits(SpreadLogitsArgs args);

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace foretoken::kernels::cuda
