// SPDX-License-Identifier: Apache-2.0
// The Backend of this machine's processor. Work is done when a call returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/pages.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/weight.h"

namespace foretoken::kernels::cpu {

struct CpuBackendOptions {
  int num_ranks = 1;     // the process's memory holds so many backends
  Quantization weights;  // of the layers' matrices; not kFp8
  Quantization head;     // of the vocabulary's matrices; not kFp8
  KvCacheDtype kv_cache = KvCacheDtype::kBf16;
};

class CpuBackend final : public Backend {
 public:
  // The backend holds the pin as long as it lives. `num_threads` counts the caller's thread.
  CpuBackend(IsaPin pin, int num_threads, const CpuBackendOptions& options = {});

  std::string Describe() const override;
  std::optional<std::string> MemoryRefusal(const MemoryNeed& need) const override;

  Buffer Allocate(size_t num_bytes) override;
  void Copy(void* to, const void* from, size_t num_bytes, CopyKind kind) override;
  void Synchronize() override {}
  Quantization weight_quantization() const override { return options_.weights; }
  Quantization head_quantization() const override { return options_.head; }
  KvCacheDtype kv_cache_dtype() const override { return options_.kv_cache; }
  std::vector<IntegerGroups> KeptGroups(std::span<const StoredPart> parts, int64_t first_input) const override {
    return cpu::KeptGroups(parts, first_input);
  }
  std::unique_ptr<Weight> PrepareWeight(const WeightSource& source) override;
  size_t MatrixBytes(const Shape& shape, const Quantization& quantization,
                     const std::optional<IntegerGroups>& kept) const override {
    return cpu::MatrixBytes(shape, quantization, kept);
  }
  std::unique_ptr<ExpertSet> PrepareExperts(int32_t num_experts, std::function<Expert(int32_t expert)> expert) override;

  void Embed(const EmbedArgs& args) override;
  void MatMul(const MatMulArgs& args) override;
  void RmsNorm(const RmsNormArgs& args) override;
  void MeanSquares(const MeanSquaresArgs& args) override;
  void RopeStoreKv(const RopeStoreKvArgs& args) override;
  void Attention(const AttentionArgs& args) override;
  void Glu(const GluArgs& args) override;
  void Experts(const ExpertsArgs& args) override;
  void Activate(const ActivateArgs& args) override;
  void RecurrentCell(const RecurrentCellArgs& args) override;
  void SumRanks(const SumRanksArgs& args) override;
  void JoinColumns(const JoinColumnsArgs& args) override;
  void CopyRows(const CopyRowsArgs& args) override;
  void CapLogits(const CapLogitsArgs& args) override;
  void SpreadLogits(const SpreadLogitsArgs& args) override;
  void MoveKv(const MoveKvArgs& args) override;
  void AcceptTrees(const AcceptTreesArgs& args) override;
  void BranchRows(const BranchRowsArgs& args) override;
  void ScoreTokens(const ScoreTokensArgs& args) override;

 private:
  IsaPin pin_;
  const CpuBackendOptions options_;
  Pages matmul_scratch_;
  Pages expert_scratch_;
  ThreadPool pool_;
};

}  // namespace foretoken::kernels::cpu
