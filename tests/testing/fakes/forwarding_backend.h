// SPDX-License-Identifier: Apache-2.0
// A backend that forwards every op to another backend. A test's backend overrides the ops that it changes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace foretoken::testing {

class ForwardingBackend : public kernels::Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<kernels::Backend> backend) : backend_(std::move(backend)) {}

  std::string Describe() const override { return backend_->Describe(); }
  bool is_asynchronous() const override { return backend_->is_asynchronous(); }
  kernels::ModelBounds model_bounds() const override { return backend_->model_bounds(); }
  kernels::Buffer Allocate(size_t num_bytes) override { return backend_->Allocate(num_bytes); }
  void Copy(void* to, const void* from, size_t num_bytes, kernels::CopyKind kind) override {
    backend_->Copy(to, from, num_bytes, kind);
  }
  void Synchronize() override { backend_->Synchronize(); }
  kernels::Quantization weight_quantization() const override { return backend_->weight_quantization(); }
  kernels::Quantization head_quantization() const override { return backend_->head_quantization(); }
  kernels::KvCacheDtype kv_cache_dtype() const override { return backend_->kv_cache_dtype(); }
  std::vector<kernels::IntegerGroups> KeptGroups(std::span<const kernels::StoredPart> parts,
                                                 int64_t first_input) const override {
    return backend_->KeptGroups(parts, first_input);
  }
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
  std::string TuneProducts(std::span<const kernels::ProductUse> uses) override { return backend_->TuneProducts(uses); }
  void Embed(const kernels::EmbedArgs& args) override { backend_->Embed(args); }
  void MatMul(const kernels::MatMulArgs& args) override { backend_->MatMul(args); }
  void RmsNorm(const kernels::RmsNormArgs& args) override { backend_->RmsNorm(args); }
  void MeanSquares(const kernels::MeanSquaresArgs& args) override { backend_->MeanSquares(args); }
  void RopeStoreKv(const kernels::RopeStoreKvArgs& args) override { backend_->RopeStoreKv(args); }
  void Attention(const kernels::AttentionArgs& args) override { backend_->Attention(args); }
  void Glu(const kernels::GluArgs& args) override { backend_->Glu(args); }
  void Experts(const kernels::ExpertsArgs& args) override { backend_->Experts(args); }
  void Activate(const kernels::ActivateArgs& args) override { backend_->Activate(args); }
  void RecurrentCell(const kernels::RecurrentCellArgs& args) override { backend_->RecurrentCell(args); }
  void SumRanks(const kernels::SumRanksArgs& args) override { backend_->SumRanks(args); }
  void JoinColumns(const kernels::JoinColumnsArgs& args) override { backend_->JoinColumns(args); }
  void CopyRows(const kernels::CopyRowsArgs& args) override { backend_->CopyRows(args); }
  void CapLogits(const kernels::CapLogitsArgs& args) override { backend_->CapLogits(args); }
  void SpreadLogits(const kernels::SpreadLogitsArgs& args) override { backend_->SpreadLogits(args); }
  void MoveKv(const kernels::MoveKvArgs& args) override { backend_->MoveKv(args); }
  void AcceptTrees(const kernels::AcceptTreesArgs& args) override { backend_->AcceptTrees(args); }
  void BranchRows(const kernels::BranchRowsArgs& args) override { backend_->BranchRows(args); }
  void ScoreTokens(const kernels::ScoreTokensArgs& args) override { backend_->ScoreTokens(args); }

 protected:
  kernels::Backend& backend() { return *backend_; }

 private:
  std::unique_ptr<kernels::Backend> backend_;
};

}  // namespace foretoken::testing
