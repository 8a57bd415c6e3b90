// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/mlp_speculator.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/json_fields.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "proposer_service/features/parts/drafter_setup.h"
#include "proposer_service/features/parts/drafter_tensors.h"
#include "proposer_service/features/parts/target_files.h"
#include "proposer_service/features/stepwise_draft.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using kernels::TensorView;
using tensor::Tensor;

struct MlpConfig {
  int64_t emb_dim = 0;    // of the features
  int64_t inner_dim = 0;  // S
  int64_t n_predict = 0;
  int64_t vocab_size = 0;
  bool tie_weights = false;
  bool scale_input = false;

  double state_weight() const { return std::pow(0.5, 0.5 / static_cast<double>(n_predict)); }
  // What embeddings are multiplied by.
  double token_scale() const {
    const double sw = state_weight();
    return std::sqrt((1 - sw * sw) * static_cast<double>(inner_dim) / 2) / sw;
  }
  int64_t num_indices() const { return tie_weights ? 1 : n_predict; }  // of everything but projections
  int64_t num_projections() const { return tie_weights ? std::min<int64_t>(n_predict, 2) : n_predict; }
};

struct MlpWeights {
  std::vector<std::unique_ptr<kernels::Weight>> embed;  // [indices] of [V, S]
  std::vector<std::unique_ptr<kernels::Weight>> proj;   // [projections] of [S, emb_dim or S], divided by token_scale
  std::vector<std::unique_ptr<kernels::Weight>> head;   // [indices] of [V, S]
  std::vector<Tensor> gain, bias;                       // [indices] of [S] f32
};

class MlpSpeculator : public StepwiseDraft {
 public:
  MlpSpeculator(std::unique_ptr<kernels::Backend> made, const MlpConfig& config, MlpWeights weights,
                const Limits& limits)
      : StepwiseDraft(std::move(made), limits, config.inner_dim),
        config_(config),
        weights_(std::move(weights)),
        input_gain_(Tensor::FromHost(backend(), std::vector<float>(config.emb_dim, std::sqrt(0.5f)))),
        feature_(backend(), DType::kF32, Shape(limits.max_rows, config.emb_dim)),
        scaled_(backend(), DType::kBF16, Shape(limits.max_rows, config.emb_dim)),
        sum_(backend(), DType::kF32, Shape(limits.max_rows, config.inner_dim)),
        normed_(backend(), DType::kBF16, Shape(limits.max_rows, config.inner_dim)),
        logits_(backend(), DType::kF32, Shape(limits.max_rows, config.vocab_size)) {}

 private:
  // Every projection has steps of its own, and no other weights have fewer.
  int32_t WeightsOf(int32_t step) const override {
    return std::min(step, static_cast<int32_t>(config_.num_projections()) - 1);
  }

  ConstTensorView Compute(const StepRows& rows, const TensorView& states) override {
    const int64_t num_rows = states.shape[0];
    const auto idx = static_cast<size_t>(std::min<int64_t>(rows.step, config_.num_indices() - 1));
    const TensorView sum = sum_.rows(num_rows), normed = normed_.rows(num_rows);
    // The sum is smaller than the definition's by token_scale, which the norm takes out again.
    const double scale = config_.token_scale();
    backend().Embed({.weight = weights_.embed[idx].get(), .token_ids = rows.token_ids, .out = sum});
    backend().MatMul({.x = rows.step == 0 ? Scaled(rows.input) : rows.input,
                      .weight = weights_.proj[static_cast<size_t>(WeightsOf(rows.step))].get(),
                      .mode = kernels::OutputMode::kAdd,
                      .out = sum});
    backend().RmsNorm(
        {.x = sum, .gain = weights_.gain[idx].f32(), .eps = static_cast<float>(kEps / (scale * scale)), .out = normed});
    backend().CopyRows({.x = normed, .num_rows = static_cast<int32_t>(num_rows), .out = sum});
    backend().Activate(
        {.x = sum, .bias = weights_.bias[idx].f32(), .activation = kernels::Activation::kGelu, .out = states});
    backend().MatMul({.x = states, .weight = weights_.head[idx].get(), .out = logits_.rows(num_rows)});
    return logits_.rows(num_rows);
  }

  ConstTensorView Scaled(const ConstTensorView& features) {
    if (!config_.scale_input) return features;
    const int64_t num_rows = features.shape[0];
    const TensorView wide = feature_.rows(num_rows), scaled = scaled_.rows(num_rows);
    backend().CopyRows({.x = features, .num_rows = static_cast<int32_t>(num_rows), .out = wide});
    backend().RmsNorm({.x = wide, .gain = input_gain_.f32(), .eps = kEps, .out = scaled});
    return scaled;
  }

  static constexpr float kEps = 1e-6f;
  const MlpConfig config_;
  const MlpWeights weights_;
  const Tensor input_gain_;  // [W] f32: 1 / sqrt(2)

  // The activations of one group of rows.
  Tensor feature_;  // [T, W] f32
  Tensor scaled_;   // [T, W] bf16
  Tensor sum_;      // [T, S] f32
  Tensor normed_;   // [T, S] bf16
  Tensor logits_;   // [T, V] f32
};

absl::StatusOr<MlpConfig> ReadMlpConfig(const std::string& directory, const TargetFiles& target) {
  constexpr int64_t kMaxPredict = 64, kMaxWidth = 1 << 20;
  const std::string path = directory + "/config.json";
  FT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  FT_ASSIGN_OR_RETURN(const model::JsonFields fields, model::JsonFields::Parse(text, path));
  MlpConfig config;
  FT_ASSIGN_OR_RETURN(config.emb_dim, fields.Required<int64_t>("emb_dim"));
  FT_ASSIGN_OR_RETURN(config.inner_dim, fields.OrDefault<int64_t>("inner_dim", 0));
  FT_ASSIGN_OR_RETURN(config.n_predict, fields.Required<int64_t>("n_predict"));
  FT_ASSIGN_OR_RETURN(config.vocab_size, fields.Required<int64_t>("vocab_size"));
  FT_ASSIGN_OR_RETURN(config.tie_weights, fields.OrDefault<bool>("tie_weights", false));
  FT_ASSIGN_OR_RETURN(config.scale_input, fields.OrDefault<bool>("scale_input", false));
  if (config.emb_dim != target.config.hidden_size) {
    return fields.Error("emb_dim", "expects the target's hidden size ", target.config.hidden_size, ", got ",
                        config.emb_dim);
  }
  if (config.inner_dim == 0) config.inner_dim = config.emb_dim;
  if (config.inner_dim < 1 || config.inner_dim > kMaxWidth) {
    return fields.Error("inner_dim", "expects 0 to ", kMaxWidth, ", got ", config.inner_dim);
  }
  if (config.n_predict < 1 || config.n_predict > kMaxPredict) {
    return fields.Error("n_predict", "expects 1 to ", kMaxPredict, ", got ", config.n_predict);
  }
  FT_RETURN_IF_ERROR(CheckVocabulary(fields, config.vocab_size, target));
  return config;
}

// A projection, divided by the scale of the embeddings.
absl::StatusOr<std::unique_ptr<kernels::Weight>> LoadProjection(const model::WeightName& name, double scale,
                                                                const DrafterTensors& tensors) {
  FT_ASSIGN_OR_RETURN(std::vector<float> values, tensors.Floats(name));
  for (float& value : values) value = static_cast<float>(value / scale);
  const ConstTensorView view{values.data(), DType::kF32, name.shape};
  return tensors.backend().PrepareWeight(
      {.parts = {&view, 1}, .quantization = tensors.backend().weight_quantization()});
}

absl::StatusOr<MlpWeights> LoadWeights(const MlpConfig& config, const DrafterTensors& tensors) {
  const int64_t inner = config.inner_dim;
  MlpWeights weights;
  for (int64_t i = 0; i < config.num_projections(); ++i) {
    const Shape shape(inner, i == 0 ? config.emb_dim : inner);
    FT_ASSIGN_OR_RETURN(weights.proj.emplace_back(),
                        LoadProjection({absl::StrCat("proj.", i, ".weight"), shape}, config.token_scale(), tensors));
  }
  for (int64_t i = 0; i < config.num_indices(); ++i) {
    const auto matrix = [&](absl::string_view role) {
      return tensors.VocabularyMatrix({absl::StrCat(role, ".", i, ".weight"), Shape(config.vocab_size, inner)});
    };
    const auto vector = [&](absl::string_view role) {
      return tensors.Vector(model::WeightName{absl::StrCat("ln.", i, ".", role), Shape(inner)});
    };
    FT_ASSIGN_OR_RETURN(weights.embed.emplace_back(), matrix("emb"));
    FT_ASSIGN_OR_RETURN(weights.head.emplace_back(), matrix("head"));
    FT_ASSIGN_OR_RETURN(weights.gain.emplace_back(), vector("weight"));
    FT_ASSIGN_OR_RETURN(weights.bias.emplace_back(), vector("bias"));
  }
  FT_RETURN_IF_ERROR(tensors.CheckAllRead());
  return weights;
}

std::string MlpTensorName(absl::string_view stored) {
  absl::ConsumePrefix(&stored, "speculator.");
  return std::string(stored);
}

}  // namespace

absl::StatusOr<Drafter> LoadMlpSpeculator(const DraftOptions& options) {
  FT_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> backend, MakeDrafterBackend(options));
  FT_ASSIGN_OR_RETURN(const TargetFiles target, OpenTarget(options.target_directory));
  FT_ASSIGN_OR_RETURN(const MlpConfig config, ReadMlpConfig(options.model_directory, target));
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(options.model_directory));
  FT_ASSIGN_OR_RETURN(const DrafterTensors tensors,
                      DrafterTensors::Make(std::move(checkpoint), *backend, MlpTensorName));
  FT_ASSIGN_OR_RETURN(
      DrafterPlan plan,
      PlanDrafter(options, target, StepwiseNeeds(target, config.inner_dim, tensors.num_bytes(), "mlp_speculator"),
                  *backend));
  FT_ASSIGN_OR_RETURN(MlpWeights weights, LoadWeights(config, tensors));
  plan.limits.vocab_size = config.vocab_size;
  plan.limits.max_steps = static_cast<int32_t>(config.n_predict);
  return Drafter{.model = std::make_unique<MlpSpeculator>(std::move(backend), config, std::move(weights), plan.limits),
                 .description = std::move(plan.description)};
}

}  // namespace foretoken::proposer
