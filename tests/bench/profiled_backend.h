// SPDX-License-Identifier: Apache-2.0
// A backend that records the time of each kind of op, for backends that finish the work of an op before the call
// returns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "tests/bench/stopwatch.h"

namespace foretoken::bench {

class ProfiledBackend final : public kernels::Backend {
 public:
  ProfiledBackend(std::unique_ptr<kernels::Backend> backend, int num_threads)
      : backend_(std::move(backend)), num_threads_(num_threads) {}

  // Milliseconds by op since the last call of this function; matrix products by shape.
  std::map<std::string, double> TakeMilliseconds() { return std::exchange(ms_, {}); }

  std::string Describe() const override { return backend_->Describe(); }
  kernels::Quantization weight_quantization() const override { return backend_->weight_quantization(); }
  kernels::Quantization head_quantization() const override { return backend_->head_quantization(); }
  kernels::KvCacheDtype kv_cache_dtype() const override { return backend_->kv_cache_dtype(); }
  std::vector<kernels::IntegerGroups> KeptGroups(std::span<const kernels::StoredPart> parts,
                                                 int64_t first_input) const override {
    return backend_->KeptGroups(parts, first_input);
  }
  kernels::Buffer Allocate(size_t num_bytes) override { return backend_->Allocate(num_bytes); }
  void Copy(void* to, const void* from, size_t num_bytes, kernels::CopyKind kind) override {
    backend_->Copy(to, from, num_bytes, kind);
  }
  void Synchronize() override { backend_->Synchronize(); }
  std::unique_ptr<kernels::Weight> PrepareWeight(const kernels::WeightSource& source) override {
    return backend_->PrepareWeight(source);
  }
  size_t MatrixBytes(const kernels::Shape& shape, const kernels::Quantization& quantization,
                     const std::optional<kernels::IntegerGroups>& kept) const override {
    return backend_->MatrixBytes(shape, quantization, kept);
  }
  bool keeps_all_experts() const override { return backend_->keeps_all_experts(); }
  std::unique_ptr<kernels::ExpertSet> PrepareExperts(int32_t num_experts,
                                                     std::function<kernels::Expert(int32_t)> expert) override {
    return backend_->PrepareExperts(num_experts, std::move(expert));
  }

  void Embed(const kernels::EmbedArgs& args) override {
    Time("embed", [&] { backend_->Embed(args); });
  }
  void MatMul(const kernels::MatMulArgs& args) override {
    const std::string shape =
        std::to_string(args.weight->in_features()) + "x" + std::to_string(args.weight->out_features());
    Time("matmul " + shape, [&] { backend_->MatMul(args); });
  }
  void RmsNorm(const kernels::RmsNormArgs& args) override {
    Time("norm", [&] { backend_->RmsNorm(args); });
  }
  void MeanSquares(const kernels::MeanSquaresArgs& args) override {
    Time("norm", [&] { backend_->MeanSquares(args); });
  }
  void RopeStoreKv(const kernels::RopeStoreKvArgs& args) override {
    Time("rope", [&] { backend_->RopeStoreKv(args); });
  }
  void Attention(const kernels::AttentionArgs& args) override {
    Time("attention", [&] { backend_->Attention(args); });
  }
  void Glu(const kernels::GluArgs& args) override {
    Time("silu", [&] { backend_->Glu(args); });
  }
  void Experts(const kernels::ExpertsArgs& args) override {
    Time("experts", [&] { backend_->Experts(args); });
  }
  void Activate(const kernels::ActivateArgs& args) override {
    Time("activate", [&] { backend_->Activate(args); });
  }
  void RecurrentCell(const kernels::RecurrentCellArgs& args) override {
    Time("cell", [&] { backend_->RecurrentCell(args); });
  }
  void SumRanks(const kernels::SumRanksArgs& args) override {
    Time("sum", [&] { backend_->SumRanks(args); });
  }
  void CopyRows(const kernels::CopyRowsArgs& args) override {
    Time("copy rows", [&] { backend_->CopyRows(args); });
  }
  void CapLogits(const kernels::CapLogitsArgs& args) override {
    Time("cap", [&] { backend_->CapLogits(args); });
  }
  void SpreadLogits(const kernels::SpreadLogitsArgs& args) override {
    Time("spread", [&] { backend_->SpreadLogits(args); });
  }
  void JoinColumns(const kernels::JoinColumnsArgs& args) override {
    Time("join", [&] { backend_->JoinColumns(args); });
  }
  void MoveKv(const kernels::MoveKvArgs& args) override {
    Time("move", [&] { backend_->MoveKv(args); });
  }
  void AcceptTrees(const kernels::AcceptTreesArgs& args) override {
    Time("draw", [&] { backend_->AcceptTrees(args); });
  }
  void BranchRows(const kernels::BranchRowsArgs& args) override {
    Time("branch", [&] { backend_->BranchRows(args); });
  }
  void ScoreTokens(const kernels::ScoreTokensArgs& args) override {
    Time("score", [&] { backend_->ScoreTokens(args); });
  }

 private:
  template <typename Op>
  void Time(std::string name, Op&& op) {
    ms_[std::move(name)] += 1e3 * Seconds(num_threads_, op);
  }

  std::unique_ptr<kernels::Backend> backend_;
  int num_threads_;
  std::map<std::string, double> ms_;
};

}  // namespace foretoken::bench
