// SPDX-License-Identifier: Apache-2.0
// A backend that computes as the one it wraps does, except that it spoils chosen rows of logits before they are drawn
// from. For host backends.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace foretoken::testing {

// The rows that draw token t of the sequences with this seed: every entry becomes `value`.
struct SpoiledRows {
  uint64_t seed = 0;
  uint32_t t = 0;
  float value = 0;
};

class SpoiledBackend final : public kernels::Backend {
 public:
  explicit SpoiledBackend(std::unique_ptr<kernels::Backend> backend) : backend_(std::move(backend)) {}

  // From now on; counts anew.
  void Spoil(const SpoiledRows& rows) {
    spoiled_ = rows;
    num_spoiled_ = 0;
  }
  int num_spoiled() const { return num_spoiled_; }

  void AcceptTrees(const kernels::AcceptTreesArgs& args) override {
    const int64_t width = args.logits.shape[1];
    std::vector<float> logits(args.logits.as<float>(), args.logits.as<float>() + args.logits.shape[0] * width);
    for (const kernels::TreeToAccept& tree : args.trees) {
      if (!spoiled_.has_value() || tree.sampling.seed != spoiled_->seed) continue;
      std::vector<uint32_t> t(tree.parents.size(), tree.context_len);
      for (size_t node = 0; node < t.size(); ++node) {
        if (node > 0) t[node] = t[tree.parents[node]] + 1;
        if (t[node] != spoiled_->t) continue;
        std::fill_n(logits.begin() + (tree.first_logit_row + static_cast<int64_t>(node)) * width, width,
                    spoiled_->value);
        ++num_spoiled_;
      }
    }
    kernels::AcceptTreesArgs spoiled = args;
    spoiled.logits.data = logits.data();
    backend_->AcceptTrees(spoiled);
  }

  std::string Describe() const override { return backend_->Describe(); }
  kernels::Buffer Allocate(size_t num_bytes) override { return backend_->Allocate(num_bytes); }
  void Copy(void* to, const void* from, size_t num_bytes, kernels::CopyKind kind) override {
    backend_->Copy(to, from, num_bytes, kind);
  }
  void Synchronize() override { backend_->Synchronize(); }
  std::unique_ptr<kernels::Weight> PrepareWeight(const kernels::WeightSource& source) override {
    return backend_->PrepareWeight(source);
  }
  void Embed(const kernels::EmbedArgs& args) override { backend_->Embed(args); }
  void MatMul(const kernels::MatMulArgs& args) override { backend_->MatMul(args); }
  void RmsNorm(const kernels::RmsNormArgs& args) override { backend_->RmsNorm(args); }
  void RopeStoreKv(const kernels::RopeStoreKvArgs& args) override { backend_->RopeStoreKv(args); }
  void Attention(const kernels::AttentionArgs& args) override { backend_->Attention(args); }
  void SiluMul(const kernels::SiluMulArgs& args) override { backend_->SiluMul(args); }
  void MoveKv(const kernels::MoveKvArgs& args) override { backend_->MoveKv(args); }
  void BranchRows(const kernels::BranchRowsArgs& args) override { backend_->BranchRows(args); }
  void ScoreTokens(const kernels::ScoreTokensArgs& args) override { backend_->ScoreTokens(args); }

 private:
  std::unique_ptr<kernels::Backend> backend_;
  std::optional<SpoiledRows> spoiled_;
  int num_spoiled_ = 0;
};

}  // namespace foretoken::testing
