// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/medusa.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/json_fields.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "proposer_service/features/parts/draft_head.h"
#include "proposer_service/features/parts/drafter_setup.h"
#include "proposer_service/features/parts/drafter_tensors.h"
#include "proposer_service/features/parts/target_files.h"
#include "proposer_service/features/stepwise_draft.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using kernels::TensorView;
using quantization::FoundWeight;
using tensor::Tensor;

struct MedusaLayer {
  std::unique_ptr<kernels::Weight> weight;  // [E, E]
  Tensor bias;                              // [E] f32, or empty
};

struct MedusaWeights {
  std::vector<std::vector<MedusaLayer>> heads;             // [M][layers]
  std::vector<std::unique_ptr<kernels::Weight>> lm_heads;  // [M] of [Vd, E], or one for all heads
  std::vector<int32_t> token_ids;                          // [Vd] of the target; empty: row i has id i
  LogitForm form;
};

class Medusa : public StepwiseDraft {
 public:
  Medusa(std::unique_ptr<kernels::Backend> made, MedusaWeights weights, const Limits& limits)
      : StepwiseDraft(std::move(made), limits, limits.feature_width),
        weights_(std::move(weights)),
        head_(weights_.token_ids, backend(),
              {.vocab_size = limits.vocab_size,
               .draft_vocab_size = weights_.lm_heads[0]->out_features(),
               .max_rows = limits.max_rows},
              weights_.form),
        x_(backend(), DType::kF32, Shape(limits.max_rows, limits.feature_width)),
        branch_(backend(), DType::kF32, Shape(limits.max_rows, limits.feature_width)),
        narrow_(backend(), DType::kBF16, Shape(limits.max_rows, limits.feature_width)) {}

 private:
  // The state is the hidden state itself: every head reads it.
  ConstTensorView Compute(const StepRows& rows, const TensorView& states) override {
    const auto num_rows = static_cast<int32_t>(states.shape[0]);
    const TensorView x = x_.rows(num_rows), branch = branch_.rows(num_rows), narrow = narrow_.rows(num_rows);
    backend().CopyRows({.x = rows.input, .num_rows = num_rows, .out = states});
    backend().CopyRows({.x = rows.input, .num_rows = num_rows, .out = x});
    for (const MedusaLayer& layer : weights_.heads[static_cast<size_t>(rows.step)]) {
      backend().CopyRows({.x = x, .num_rows = num_rows, .out = narrow});
      backend().MatMul({.x = narrow, .weight = layer.weight.get(), .out = branch});
      backend().Activate({.x = branch,
                          .bias = layer.bias.f32(),
                          .activation = kernels::Activation::kSilu,
                          .mode = kernels::OutputMode::kAdd,
                          .out = x});
    }
    backend().CopyRows({.x = x, .num_rows = num_rows, .out = narrow});
    const size_t last = weights_.lm_heads.size() - 1;
    return head_.Logits(narrow, *weights_.lm_heads[std::min(static_cast<size_t>(rows.step), last)]);
  }

  const MedusaWeights weights_;
  DraftHead head_;

  // The activations of one group of rows.
  Tensor x_;       // [T, E] f32
  Tensor branch_;  // [T, E] f32
  Tensor narrow_;  // [T, E] bf16
};

// Gives vLLM's names to those of the first release: "M.J.linear.weight" is "blocks.M.layers.J.weight", and
// "M.N.weight", after the last layer, is "lm_heads.M.weight".
std::string MedusaTensorName(absl::string_view stored) {
  absl::ConsumePrefix(&stored, "medusa_heads.");
  absl::ConsumePrefix(&stored, "medusa_head.");
  const std::vector<std::string> parts = absl::StrSplit(stored, '.');
  int64_t head = 0, layer = 0;
  const bool is_numbered = parts.size() >= 3 && absl::SimpleAtoi(parts[0], &head) && absl::SimpleAtoi(parts[1], &layer);
  if (is_numbered && parts.size() == 4 && parts[2] == "linear") {
    return absl::StrCat("blocks.", parts[0], ".layers.", parts[1], ".", parts[3]);
  }
  if (is_numbered && parts.size() == 3) return absl::StrCat("lm_heads.", parts[0], ".", parts[2]);
  return std::string(stored);
}

struct MedusaConfig {
  int64_t num_heads = 0;
  int64_t num_layers = 0;
  bool has_shared_head = false;
  float logit_scale = 1;
};

// Counts are those of the file's tensors where the configuration lacks them, or says fewer.
absl::StatusOr<MedusaConfig> ReadMedusaConfig(const std::string& directory, const DrafterTensors& tensors) {
  constexpr int64_t kMaxHeads = 64, kMaxLayers = 64;
  const std::string path = directory + "/config.json";
  FT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  FT_ASSIGN_OR_RETURN(const model::JsonFields fields, model::JsonFields::Parse(text, path));
  const auto count = [&](const char* first, const char* second, int64_t stored,
                         int64_t max) -> absl::StatusOr<int64_t> {
    const char* const name = fields.Has(first) ? first : second;
    FT_ASSIGN_OR_RETURN(const int64_t value, fields.OrDefault<int64_t>(name, stored));
    if (value >= 1 && value < stored && stored <= max) {
      spdlog::warn("medusa: {} is {}, and the file's tensors are those of {}, which are used", name, value, stored);
      return stored;
    }
    if (value < 1 || value > max) return fields.Error(name, "expects 1 to ", max, ", got ", value);
    return value;
  };
  int64_t num_heads = 0, num_layers = 0;
  while (tensors.Contains(absl::StrCat("blocks.", num_heads, ".layers.0.weight"))) ++num_heads;
  while (tensors.Contains(absl::StrCat("blocks.0.layers.", num_layers, ".weight"))) ++num_layers;
  MedusaConfig config;
  FT_ASSIGN_OR_RETURN(config.num_heads, count("medusa_num_heads", "num_heads", num_heads, kMaxHeads));
  FT_ASSIGN_OR_RETURN(config.num_layers, count("medusa_num_layers", "num_hidden_layers", num_layers, kMaxLayers));
  FT_ASSIGN_OR_RETURN(config.has_shared_head, fields.OrDefault<bool>("original_lm_head", false));
  FT_ASSIGN_OR_RETURN(config.logit_scale, ReadLogitScale(fields));
  return config;
}

absl::StatusOr<std::vector<int32_t>> ReadTokenIds(const DrafterTensors& tensors, const TargetFiles& target) {
  std::vector<int32_t> token_ids;
  if (!tensors.Contains("token_map")) return token_ids;
  FT_ASSIGN_OR_RETURN(const Shape shape, tensors.ShapeOf("token_map", 1));
  FT_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, tensors.Integers("token_map", shape[0]));
  std::set<int64_t> seen;
  for (const int64_t id : ids) {
    if (id < 0 || id >= target.config.vocab_size || !seen.insert(id).second) {
      return absl::InvalidArgumentError(absl::StrCat(tensors.directory(),
                                                     ": tensor token_map: expected distinct ids from 0 to ",
                                                     target.config.vocab_size - 1, ", got ", id));
    }
    token_ids.push_back(static_cast<int32_t>(id));
  }
  return token_ids;
}

// The number of the LM heads' outputs: the vocabulary, or the listed part of it.
absl::Status CheckOutputs(int64_t num_outputs, const MedusaWeights& weights, const DrafterTensors& tensors,
                          const TargetFiles& target) {
  const auto num_listed = static_cast<int64_t>(weights.token_ids.size());
  const bool fits = num_listed > 0 ? num_outputs == num_listed
                                   : num_outputs >= target.num_tokens() && num_outputs <= target.config.vocab_size;
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(tensors.directory(), ": tensor lm_heads.0.weight: expected ",
                                                 num_listed > 0 ? num_listed : target.num_tokens(),
                                                 " outputs, one for each token, got ", num_outputs));
}

absl::Status LoadLmHeads(const MedusaConfig& config, const DrafterTensors& tensors, const TargetFiles& target,
                         MedusaWeights& weights) {
  weights.form.scale = config.logit_scale;
  if (!tensors.Contains("lm_heads.0.weight")) {
    if (!weights.token_ids.empty()) return tensors.ShapeOf("lm_heads.0.weight", 2).status();
    weights.form = FormOfTarget(target.config, config.logit_scale);
    FT_ASSIGN_OR_RETURN(const FoundWeight head, target.Head());
    const kernels::IndexRange all = {0, target.config.vocab_size};
    weights.lm_heads.push_back(PrepareRows(head, {&all, 1}, tensors.backend()));
    return absl::OkStatus();
  }
  FT_ASSIGN_OR_RETURN(const Shape shape, tensors.ShapeOf("lm_heads.0.weight", 2));
  FT_RETURN_IF_ERROR(CheckOutputs(shape[0], weights, tensors, target));
  const int64_t num_lm_heads = config.has_shared_head ? 1 : config.num_heads;
  for (int64_t m = 0; m < num_lm_heads; ++m) {
    const model::WeightName name{absl::StrCat("lm_heads.", m, ".weight"), Shape(shape[0], target.config.hidden_size)};
    FT_ASSIGN_OR_RETURN(weights.lm_heads.emplace_back(), tensors.VocabularyMatrix(name));
  }
  return absl::OkStatus();
}

absl::StatusOr<MedusaWeights> LoadWeights(const MedusaConfig& config, const DrafterTensors& tensors,
                                          const TargetFiles& target) {
  const int64_t hidden = target.config.hidden_size;
  MedusaWeights weights;
  FT_ASSIGN_OR_RETURN(weights.token_ids, ReadTokenIds(tensors, target));
  for (int64_t m = 0; m < config.num_heads; ++m) {
    std::vector<MedusaLayer>& layers = weights.heads.emplace_back();
    for (int64_t j = 0; j < config.num_layers; ++j) {
      const std::string prefix = absl::StrCat("blocks.", m, ".layers.", j, ".");
      MedusaLayer& layer = layers.emplace_back();
      FT_ASSIGN_OR_RETURN(layer.weight, tensors.Matrix({{prefix + "weight", Shape(hidden, hidden)}}));
      if (!tensors.Contains(prefix + "bias")) continue;
      FT_ASSIGN_OR_RETURN(layer.bias, tensors.Vector(model::WeightName{prefix + "bias", Shape(hidden)}));
    }
  }
  FT_RETURN_IF_ERROR(LoadLmHeads(config, tensors, target, weights));
  FT_RETURN_IF_ERROR(tensors.CheckAllRead());
  return weights;
}

// The first release has a file of its own name.
absl::StatusOr<weights::Checkpoint> OpenFiles(const std::string& directory) {
  constexpr char kFirstRelease[] = "medusa_lm_head.safetensors";
  std::error_code ignored;
  if (std::filesystem::exists(absl::StrCat(directory, "/", kFirstRelease), ignored)) {
    return weights::Checkpoint::OpenFile(directory, kFirstRelease);
  }
  absl::StatusOr<weights::Checkpoint> checkpoint = weights::Checkpoint::Open(directory);
  if (!absl::IsNotFound(checkpoint.status())) return checkpoint;
  return absl::NotFoundError(
      absl::StrCat(checkpoint.status().message(), ". A Medusa head may also be named ", kFirstRelease));
}

}  // namespace

absl::StatusOr<Drafter> LoadMedusa(const DraftOptions& options) {
  FT_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> backend, MakeDrafterBackend(options));
  FT_ASSIGN_OR_RETURN(const TargetFiles target, OpenTarget(options.target_directory));
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, OpenFiles(options.model_directory));
  FT_ASSIGN_OR_RETURN(const DrafterTensors tensors,
                      DrafterTensors::Make(std::move(checkpoint), *backend, MedusaTensorName));
  FT_ASSIGN_OR_RETURN(const MedusaConfig config, ReadMedusaConfig(options.model_directory, tensors));
  FT_ASSIGN_OR_RETURN(
      DrafterPlan plan,
      PlanDrafter(options, target, StepwiseNeeds(target, target.config.hidden_size, tensors.num_bytes(), "medusa"),
                  *backend));
  FT_ASSIGN_OR_RETURN(MedusaWeights weights, LoadWeights(config, tensors, target));
  plan.limits.vocab_size = weights.token_ids.empty() ? weights.lm_heads[0]->out_features() : target.config.vocab_size;
  plan.limits.max_steps = static_cast<int32_t>(config.num_heads);
  return Drafter{.model = std::make_unique<Medusa>(std::move(backend), std::move(weights), plan.limits),
                 .description = std::move(plan.description)};
}

}  // namespace foretoken::proposer
