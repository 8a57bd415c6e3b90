// SPDX-License-Identifier: Apache-2.0
// A backend that computes as the real one does but accepts as a test says: for rules that are wrong on purpose.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace foretoken::testing {

using AcceptRule = std::function<void(kernels::Backend& real, const kernels::AcceptTreesArgs& args)>;

class OtherDrawBackend final : public kernels::Backend {
 public:
  OtherDrawBackend(std::unique_ptr<kernels::Backend> real, AcceptRule rule)
      : real_(std::move(real)), rule_(std::move(rule)) {}

  void AcceptTrees(const kernels::AcceptTreesArgs& args) override { rule_(*real_, args); }

  std::string Describe() const override { return real_->Describe(); }
  kernels::Buffer Allocate(size_t num_bytes) override { return real_->Allocate(num_bytes); }
  void Copy(void* to, const void* from, size_t num_bytes, kernels::CopyKind kind) override {
    real_->Copy(to, from, num_bytes, kind);
  }
  void Synchronize() override { real_->Synchronize(); }
  std::unique_ptr<kernels::Weight> PrepareWeight(const kernels::WeightSource& source) override {
    return real_->PrepareWeight(source);
  }
  void Embed(const kernels::EmbedArgs& args) override { real_->Embed(args); }
  void MatMul(const kernels::MatMulArgs& args) override { real_->MatMul(args); }
  void RmsNorm(const kernels::RmsNormArgs& args) override { real_->RmsNorm(args); }
  void RopeStoreKv(const kernels::RopeStoreKvArgs& args) override { real_->RopeStoreKv(args); }
  void Attention(const kernels::AttentionArgs& args) override { real_->Attention(args); }
  void SiluMul(const kernels::SiluMulArgs& args) override { real_->SiluMul(args); }
  void MoveKv(const kernels::MoveKvArgs& args) override { real_->MoveKv(args); }
  void ScoreTokens(const kernels::ScoreTokensArgs& args) override { real_->ScoreTokens(args); }

 private:
  std::unique_ptr<kernels::Backend> real_;
  AcceptRule rule_;
};

}  // namespace foretoken::testing
