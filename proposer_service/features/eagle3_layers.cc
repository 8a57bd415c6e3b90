// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/eagle3_layers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "proposer_service/features/parts/drafter_setup.h"
#include "proposer_service/features/parts/drafter_tensors.h"
#include "proposer_service/features/parts/target_files.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

using kernels::DType;
using kernels::Shape;
using kernels::TensorView;
using tensor::Tensor;

// The described name of a stored tensor: without "model.", and with "layers.0." for "midlayer.".
std::string Eagle3TensorName(absl::string_view stored) {
  absl::ConsumePrefix(&stored, "model.");
  return absl::ConsumePrefix(&stored, "midlayer.") ? absl::StrCat("layers.0.", stored) : std::string(stored);
}

// Refuses files of related formats by name.
absl::Status CheckEagle3Tensors(const DrafterTensors& tensors, int64_t hidden_size) {
  static constexpr std::pair<const char*, const char*> kOthers[] = {{"markov_head.markov_w1.weight", "DSpark"},
                                                                    {"hidden_norm.weight", "DFlash"}};
  for (const auto& [name, format] : kOthers) {
    if (tensors.Contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat(tensors.directory(), ": expected an EAGLE-3 head, got tensor ",
                                                     name, " of ", format, ", which --method=dflash reads"));
    }
  }
  FT_ASSIGN_OR_RETURN(const Shape q, tensors.ShapeOf("layers.0.self_attn.q_proj.weight", 2));
  if (q[1] == 2 * hidden_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      tensors.directory(), ": tensor layers.0.self_attn.q_proj.weight: expected 2 hidden_size = ", 2 * hidden_size,
      " inputs, as EAGLE-3 has, got ", q[1], q[1] == hidden_size ? ", as in a head of EAGLE-1 or -2" : ""));
}

absl::StatusOr<std::vector<float>> ReadGains(const Eagle3Config& config, int64_t target_hidden,
                                             const DrafterTensors& tensors) {
  using Norm = speculation::FeatureProjection::Norm;
  const auto num_layers = static_cast<int64_t>(config.layers.layers.size());
  if (config.norm == Norm::kNone) return std::vector<float>();
  if (config.norm == Norm::kWhole) return tensors.Floats({"input_norm.weight", Shape(num_layers * target_hidden)});
  std::vector<float> gains;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    FT_ASSIGN_OR_RETURN(const std::vector<float> part,
                        tensors.Floats({absl::StrCat("fc_norm.", layer, ".weight"), Shape(target_hidden)}));
    gains.insert(gains.end(), part.begin(), part.end());
  }
  return gains;
}

absl::StatusOr<speculation::TargetFeatures> ReadFeatures(const Eagle3Config& config, const TargetFiles& target,
                                                         const DrafterTensors& tensors) {
  if (!config.reads_layers) return speculation::TargetFeatures{.target_hidden_size = target.config.hidden_size};
  FT_ASSIGN_OR_RETURN(speculation::TargetFeatures features,
                      ReadProjectedFeatures(config.layers, config.block.hidden_size, target, tensors));
  features.projection->norm = config.norm;
  features.projection->eps = static_cast<float>(config.block.rms_norm_eps);
  FT_ASSIGN_OR_RETURN(features.projection->gains, ReadGains(config, target.config.hidden_size, tensors));
  return features;
}

absl::StatusOr<Eagle3Weights> LoadWeights(const Eagle3Config& config, const TargetFiles& target,
                                          const DrafterTensors& tensors) {
  const int64_t hidden = config.block.hidden_size;
  Eagle3Weights weights;
  FT_ASSIGN_OR_RETURN(weights.embed, LoadDraftEmbedding(config.block, tensors, target));
  for (int64_t layer = 0; layer < config.block.num_layers; ++layer) {
    const BlockShape shape = {.layer = layer, .qkv_inputs = layer == 0 ? 2 * hidden : hidden};
    FT_ASSIGN_OR_RETURN(weights.layers.emplace_back(), LoadBlock(config.block, shape, tensors));
  }
  FT_ASSIGN_OR_RETURN(weights.hidden_norm,
                      tensors.Vector(model::WeightName{"layers.0.hidden_norm.weight", Shape(hidden)}));
  FT_ASSIGN_OR_RETURN(std::vector<float> norm, tensors.Floats({"norm.weight", Shape(hidden)}));
  weights.norm = Tensor::FromHost(tensors.backend(), norm);
  for (float& gain : norm) gain *= config.logit_scale;
  weights.head_norm = Tensor::FromHost(tensors.backend(), norm);
  FT_ASSIGN_OR_RETURN(weights.head, LoadDraftHead({.vocab_size = config.block.vocab_size,
                                                   .draft_vocab_size = config.draft_vocab_size,
                                                   .num_inputs = hidden},
                                                  tensors, target));
  return weights;
}

absl::StatusOr<Eagle3Config> ReadConfigFile(const DraftOptions& options, const TargetFiles& target) {
  const std::string path = options.model_directory + "/config.json";
  FT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  return ReadEagle3Config(text, path, SizesOf(target), options.feature_layers);
}

// Publishers forget keys, and some call a qwen3 block llama. The tensors decide.
void TakeForm(const DrafterTensors& tensors, Eagle3Config& config) {
  using Norm = speculation::FeatureProjection::Norm;
  config.block.qk_norm = tensors.Contains("layers.0.self_attn.q_norm.weight");
  const Norm said = config.norm;
  if (tensors.Contains("input_norm.weight")) {
    config.norm = Norm::kWhole;
  } else if (tensors.Contains("fc_norm.0.weight")) {
    config.norm = Norm::kPerLayer;
  }
  if (config.norm != said) {
    spdlog::info("eagle3: norms the features before the first matrix by its tensors, which config.json does not say");
  }
}

// The mask state has any number of leading ones.
absl::StatusOr<std::vector<float>> ReadMaskState(const Eagle3Config& config, const TargetFiles& target,
                                                 const DrafterTensors& tensors) {
  if (!tensors.Contains("mask_hidden")) return std::vector<float>();
  const int64_t num_layers = config.reads_layers ? static_cast<int64_t>(config.layers.layers.size()) : 1;
  const int64_t size = num_layers * target.config.hidden_size;
  for (const Shape& shape : {Shape(1, 1, size), Shape(1, size)}) {
    if (tensors.Find({"mask_hidden", shape}).ok()) return tensors.Floats({"mask_hidden", shape});
  }
  return tensors.Floats({"mask_hidden", Shape(size)});
}

}  // namespace

absl::StatusOr<Eagle3Files> ReadEagle3Files(const DraftOptions& options) {
  Eagle3Files files;
  FT_ASSIGN_OR_RETURN(files.backend, MakeDrafterBackend(options));
  FT_ASSIGN_OR_RETURN(const TargetFiles target, OpenTarget(options.target_directory));
  FT_ASSIGN_OR_RETURN(files.config, ReadConfigFile(options, target));
  Eagle3Config& config = files.config;
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(options.model_directory));
  FT_ASSIGN_OR_RETURN(const DrafterTensors tensors,
                      DrafterTensors::Make(std::move(checkpoint), *files.backend, Eagle3TensorName));
  FT_RETURN_IF_ERROR(CheckEagle3Tensors(tensors, config.block.hidden_size));
  TakeForm(tensors, config);
  FT_ASSIGN_OR_RETURN(files.mask_state, ReadMaskState(config, target, tensors));
  DrafterNeeds needs = {.method = "eagle3",
                        .bytes = BytesOf(config.block, *files.backend),
                        .weight_bytes = tensors.num_bytes(),
                        .vocab_size = config.block.vocab_size};
  if (!files.mask_state.empty()) needs.pass_bytes = static_cast<size_t>(options.max_kept_logit_bytes);
  FT_ASSIGN_OR_RETURN(needs.features, ReadFeatures(config, target, tensors));
  FT_ASSIGN_OR_RETURN(DrafterPlan plan, PlanDrafter(options, target, std::move(needs), *files.backend));
  files.limits = plan.limits;
  files.description = std::move(plan.description);
  FT_ASSIGN_OR_RETURN(files.weights, LoadWeights(config, target, tensors));
  FT_RETURN_IF_ERROR(tensors.CheckAllRead());
  spdlog::info("eagle3: reads {}", config.reads_layers ? Describe(config.layers) : "the last hidden state");
  return files;
}

Eagle3Layers::Eagle3Layers(const Eagle3Config& config, Eagle3Weights& weights, kernels::Backend& backend,
                           const BlockLimits& limits)
    : config_(config),
      backend_(backend),
      embed_(std::move(weights.embed)),
      hidden_norm_(std::move(weights.hidden_norm)),
      blocks_(config.block, std::move(weights.layers), backend, limits),
      embedded_(backend, DType::kF32, Shape(limits.max_rows, config.block.hidden_size)),
      normed_(backend, DType::kBF16, Shape(limits.max_rows, config.block.hidden_size)),
      pair_(backend, DType::kBF16, Shape(limits.max_rows, 2 * config.block.hidden_size)) {}

void Eagle3Layers::Run(const kernels::BatchView& batch, const TensorView& hidden) {
  JoinInputs(batch, hidden);
  blocks_.Attend(batch, 0, pair_.rows(batch.num_rows), hidden);
  blocks_.Feed(0, hidden);
  for (int32_t layer = 1; layer < blocks_.num_layers(); ++layer) blocks_.Run(batch, layer, hidden);
}

// pair = cat(e, u). The residual stream begins with g, or with u.
void Eagle3Layers::JoinInputs(const kernels::BatchView& batch, const TensorView& hidden) {
  const int32_t T = batch.num_rows;
  const auto eps = static_cast<float>(config_.block.rms_norm_eps);
  const TensorView normed = normed_.rows(T);
  backend_.Embed({.weight = embed_.get(), .token_ids = batch.token_ids, .out = embedded_.rows(T)});
  backend_.RmsNorm({.x = embedded_.rows(T), .gain = blocks_.layer(0).input_norm.f32(), .eps = eps, .out = normed});
  backend_.CopyRows({.x = normed, .num_rows = T, .out = pair_.rows(T)});
  backend_.RmsNorm({.x = hidden, .gain = hidden_norm_.f32(), .eps = eps, .out = normed});
  backend_.CopyRows({.x = normed, .num_rows = T, .out = pair_.rows(T), .first_column = config_.block.hidden_size});
  if (config_.norm_before_residual) backend_.CopyRows({.x = normed, .num_rows = T, .out = hidden});
}

}  // namespace foretoken::proposer
