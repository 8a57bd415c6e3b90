// SPDX-License-Identifier: Apache-2.0
// The reference forward pass of all families of models, written like their definition: scalar, in double, one
// sequence, no cache. It computes the whole context each time. Tests compare the real transformer with it.
//
//   FT_ASSIGN_OR_RETURN(const Transformer model, Transformer::Load("tests/cases/models/llama", Rounding::kNone));
//   const std::vector<std::vector<double>> logits = model.Logits(token_ids, {token_ids.size() - 1});
//
// Source: transformers' modeling files of the families in common/model/config/families.h.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "common/model/weight_names.h"

namespace foretoken::reference {

// kBf16 rounds to bf16 in the same places as a backend: matrices, the inputs of matrix products, and stored K and V.
enum class Rounding { kNone, kBf16 };

class Transformer {
 public:
  // Reads config.json and every tensor of a checkpoint directory.
  static absl::StatusOr<Transformer> Load(const std::string& directory, Rounding rounding);
  // The same tensors, computed as another configuration says.
  Transformer With(model::ModelConfig config) const;
  // The same model with a mistake: a token leaves out its best expert, and takes as many of the next ones.
  Transformer WithoutTheBestExpert() const;

  const model::ModelConfig& config() const { return config_; }

  // Returns one row [V] per entry of `positions`: the logits of the token after this position. All `token_ids` are in
  // the vocabulary.
  std::vector<std::vector<double>> Logits(std::span<const int64_t> token_ids, std::span<const size_t> positions) const;

  using Row = std::vector<double>;
  using Rows = std::vector<Row>;  // [T, features]

  // Returns the residual streams S_0 to S_L of all rows, [L + 1][T, E]: S_k enters layer k, and S_L is the last
  // layer's output.
  std::vector<Rows> HiddenStates(std::span<const int64_t> token_ids) const;
  // Returns the rows after the final norm.
  Rows FinalNorm(const Rows& x) const;

 private:
  Transformer(model::ModelConfig config, Rounding rounding)
      : config_(std::move(config)), names_(model::NameWeights(config_)), rounding_(rounding) {}
  double Rounded(double value) const;
  const std::vector<double>& Values(const model::WeightName& weight) const { return weights_.at(weight.name); }
  Row Normed(const Row& x, std::span<const double> weight) const;
  Rows AllNormed(const Rows& x, const std::optional<model::WeightName>& weight) const;  // of no weight: x
  void AddToResidual(Rows& x, Rows part, const std::optional<model::WeightName>& post_norm) const;
  Rows MatMul(const Rows& x, const model::WeightName& weight) const;
  Rows Project(const Rows& x, const model::WeightName& weight, const std::optional<model::WeightName>& bias) const;
  void NormAndRotateHeads(Rows& x, const std::optional<model::WeightName>& gain, size_t layer) const;
  Rows Attention(const Rows& x, size_t layer) const;
  Rows Mlp(const Rows& x, const model::LayerWeightNames& layer) const;
  Rows Experts(const Rows& x, const model::LayerWeightNames& layer) const;
  Row GatedRow(const Row& gate_up) const;  // half as wide

  model::ModelConfig config_;
  model::ModelWeightNames names_;
  Rounding rounding_;
  size_t first_expert_ = 0;  // rank of the first that a token takes
  std::map<std::string, std::vector<double>> weights_;
};

}  // namespace foretoken::reference
