// SPDX-License-Identifier: Apache-2.0
#include "common/model/config/experts_config.h"

#include <vector>

#include "common/base/status_macros.h"
#include "common/model/config/bounds.h"

namespace foretoken::model {
namespace {

// Qwen's rule: which layers have experts.
absl::StatusOr<std::vector<bool>> ReadSparseLayers(const JsonFields& fields, int64_t num_layers) {
  FT_ASSIGN_OR_RETURN(const int64_t step, fields.OrDefault<int64_t>("decoder_sparse_step", 1));
  if (step < 1) return fields.Error("decoder_sparse_step", "expects an integer above 0, got ", step);
  std::vector<bool> is_sparse;
  for (int64_t layer = 0; layer < num_layers; ++layer) is_sparse.push_back((layer + 1) % step == 0);
  FT_ASSIGN_OR_RETURN(const auto dense, fields.OrDefault<std::vector<int64_t>>("mlp_only_layers", {}));
  for (const int64_t layer : dense) {
    if (layer < 0 || layer >= num_layers) {
      return fields.Error("mlp_only_layers", "expects layers from 0 to ", num_layers - 1, ", got ", layer);
    }
    is_sparse[static_cast<size_t>(layer)] = false;
  }
  return is_sparse;
}

// GLM's rule: sigmoids with a bias in the choice, and a part that every token takes.
absl::Status ReadGlmExperts(const JsonFields& fields, const ModelConfig& config, ExpertsConfig& experts) {
  FT_ASSIGN_OR_RETURN(const int64_t num_dense, fields.OrDefault<int64_t>("first_k_dense_replace", 1));
  if (num_dense < 0) return fields.Error("first_k_dense_replace", "expects an integer of at least 0, got ", num_dense);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) experts.layers.push_back(layer >= num_dense);
  FT_ASSIGN_OR_RETURN(const int64_t num_shared, fields.OrDefault<int64_t>("n_shared_experts", 1));
  const int64_t max_shared = kMaxWidth / experts.intermediate_size;
  if (num_shared < 0 || num_shared > max_shared) {
    return fields.Error("n_shared_experts", "expects an integer from 0 to ", max_shared, ", got ", num_shared);
  }
  experts.shared_size = num_shared * experts.intermediate_size;
  FT_ASSIGN_OR_RETURN(experts.scale, fields.OrDefault<double>("routed_scaling_factor", 1));
  FT_ASSIGN_OR_RETURN(const bool is_normed, fields.OrDefault<bool>("norm_topk_prob", true));
  experts.weighting = is_normed ? kernels::ExpertWeighting::kSigmoidOverChosen : kernels::ExpertWeighting::kSigmoid;
  experts.has_choice_bias = true;
  return absl::OkStatus();
}

// gpt-oss's rule: biases everywhere, and a gate that cuts large values and adds one to up.
absl::Status ReadGptOssExperts(const JsonFields& fields, ModelConfig& config) {
  config.experts.names = ExpertNames::kGptOss;
  config.experts.has_biases = true;
  FT_ASSIGN_OR_RETURN(const double limit, fields.OrDefault<double>("swiglu_limit", 7));
  if (limit <= 0) return fields.Error("swiglu_limit", "expects a number above 0, got ", limit);
  config.gating = {.activation = kernels::Activation::kGeluQuick,
                   .limit = static_cast<float>(limit),
                   .up_offset = 1,
                   .is_interleaved = true};
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadExperts(const JsonFields& fields, const Family& family, ModelConfig& config) {
  if (family.experts == ExpertRule::kNone) return absl::OkStatus();
  ExpertsConfig& experts = config.experts;
  const char* count_field = "num_local_experts";  // which transformers 5 writes for all families
  for (const char* old : {"num_experts", "n_routed_experts"}) {
    if (fields.Has(old)) count_field = old;
  }
  FT_ASSIGN_OR_RETURN(experts.num_experts, ReadSize(fields, count_field, kMaxExperts));
  if (experts.num_experts * config.num_layers > kMaxExpertsOfModel) {
    return fields.Error(count_field, "expects at most ", kMaxExpertsOfModel, " experts in ", config.num_layers,
                        " layers, got ", experts.num_experts, " in each");
  }
  const bool has_old_name = fields.Has("experts_per_token") && !fields.Has("num_experts_per_tok");
  const char* const chosen_field = has_old_name ? "experts_per_token" : "num_experts_per_tok";
  FT_ASSIGN_OR_RETURN(experts.num_chosen, ReadSize(fields, chosen_field, experts.num_experts));
  if (family.experts == ExpertRule::kMixtral || family.experts == ExpertRule::kGptOss) {
    experts.intermediate_size = config.intermediate_size;
    experts.layers.assign(static_cast<size_t>(config.num_layers), true);
    experts.names = ExpertNames::kMixtral;
    return family.experts == ExpertRule::kGptOss ? ReadGptOssExperts(fields, config) : absl::OkStatus();
  }
  FT_ASSIGN_OR_RETURN(experts.intermediate_size, ReadSize(fields, "moe_intermediate_size", kMaxWidth));
  if (family.experts == ExpertRule::kGlm) return ReadGlmExperts(fields, config, experts);
  FT_ASSIGN_OR_RETURN(experts.layers, ReadSparseLayers(fields, config.num_layers));
  FT_ASSIGN_OR_RETURN(const bool is_normed, fields.OrDefault<bool>("norm_topk_prob", false));
  if (!is_normed) experts.weighting = kernels::ExpertWeighting::kSoftmaxOverAll;
  return absl::OkStatus();
}

}  // namespace foretoken::model
