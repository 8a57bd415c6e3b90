// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/eagle.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/model/device_batch.h"
#include "proposer_service/features/eagle3_config.h"
#include "proposer_service/features/parts/draft_head.h"
#include "proposer_service/features/parts/drafter_blocks.h"
#include "proposer_service/features/parts/drafter_setup.h"
#include "proposer_service/features/parts/drafter_tensors.h"
#include "proposer_service/features/parts/slot_outputs.h"
#include "proposer_service/features/parts/target_files.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using kernels::TensorView;
using tensor::Tensor;

struct EagleWeights {
  std::unique_ptr<kernels::Weight> embed;  // [V, E]
  std::unique_ptr<kernels::Weight> fc;     // [E, 2 E]
  Tensor fc_bias;                          // [E] f32, or empty
  Tensor embed_norm;                       // [E] f32, or empty
  Tensor head_norm;                        // [E] f32, or empty
  std::vector<model::LayerWeights> layers;
  DraftHeadParts head;
};

class Eagle : public DraftModel {
 public:
  Eagle(std::unique_ptr<kernels::Backend> backend, const model::ModelConfig& config, EagleWeights weights,
        const Limits& limits)
      : backend_(std::move(backend)),
        limits_(limits),
        embed_(std::move(weights.embed)),
        fc_(std::move(weights.fc)),
        fc_bias_(std::move(weights.fc_bias)),
        embed_norm_(std::move(weights.embed_norm)),
        head_norm_(std::move(weights.head_norm)),
        eps_(static_cast<float>(config.rms_norm_eps)),
        blocks_(config, std::move(weights.layers), *backend_,
                {.max_rows = limits.max_rows, .max_positions = limits.max_positions, .num_blocks = limits.num_blocks}),
        lm_head_(std::move(weights.head.weight)),
        head_({}, *backend_,
              {.vocab_size = limits.vocab_size, .draft_vocab_size = limits.vocab_size, .max_rows = limits.max_rows},
              weights.head.form),
        outputs_(*backend_, {.num_slots = int64_t{limits.num_blocks} * kernels::kKvBlockSize,
                             .width = limits.feature_width,
                             .max_rows = limits.max_rows}),
        batch_(*backend_, 0),
        embedded_(*backend_, DType::kF32, Shape(limits.max_rows, config.hidden_size)),
        hidden_(*backend_, DType::kF32, Shape(limits.max_rows, config.hidden_size)),
        narrow_(*backend_, DType::kBF16, Shape(limits.max_rows, config.hidden_size)),
        pair_(*backend_, DType::kBF16, Shape(limits.max_rows, 2 * config.hidden_size)) {}

  const Limits& limits() const override { return limits_; }
  kernels::Backend& backend() const override { return *backend_; }
  void Synchronize() override { backend_->Synchronize(); }

  ConstTensorView Forward(const DraftPass& pass) override {
    const model::DeviceBatch::View view = batch_.Upload(pass.batch);
    const int32_t T = view.batch.num_rows;
    const TensorView hidden = hidden_.rows(T), embedded = embedded_.rows(T), narrow = narrow_.rows(T);
    backend_->Embed({.weight = embed_.get(), .token_ids = view.batch.token_ids, .out = embedded});
    if (embed_norm_.f32() != nullptr) {
      backend_->RmsNorm({.x = embedded, .gain = embed_norm_.f32(), .eps = eps_, .out = narrow});
      backend_->CopyRows({.x = narrow, .num_rows = T, .out = pair_.rows(T)});
    } else {
      backend_->CopyRows({.x = embedded, .num_rows = T, .out = pair_.rows(T)});
    }
    outputs_.Gather(pass, hidden);
    backend_->CopyRows({.x = hidden, .num_rows = T, .out = pair_.rows(T), .first_column = limits_.feature_width});
    backend_->MatMul({.x = pair_.rows(T), .weight = fc_.get(), .bias = fc_bias_.f32(), .out = hidden});
    const bool has_input_norm = blocks_.layer(0).input_norm.f32() != nullptr;
    if (!has_input_norm) {
      backend_->CopyRows({.x = hidden, .num_rows = T, .out = narrow});
      blocks_.Attend(view.batch, 0, narrow, hidden);
      blocks_.Feed(0, hidden);
    }
    for (int32_t layer = has_input_norm ? 0 : 1; layer < blocks_.num_layers(); ++layer)
      blocks_.Run(view.batch, layer, hidden);
    outputs_.Store(hidden, view.batch.slots);
    if (view.num_logit_rows == 0) return {.shape = Shape(0, limits_.vocab_size)};
    const TensorView outputs = narrow_.rows(view.num_logit_rows);
    if (head_norm_.f32() != nullptr) {
      backend_->RmsNorm(
          {.x = hidden_.view(), .rows = view.logit_rows, .gain = head_norm_.f32(), .eps = eps_, .out = outputs});
    } else {
      backend_->CopyRows(
          {.x = hidden_.view(), .from = view.logit_rows, .num_rows = view.num_logit_rows, .out = outputs});
    }
    return head_.Logits(outputs, *lm_head_);
  }

  void Move(std::span<const kernels::KvMove> moves) override {
    backend_->MoveKv({.kv = blocks_.kv(), .moves = moves});
    outputs_.Move(moves);
  }

 private:
  const std::unique_ptr<kernels::Backend> backend_;  // outlives the members below
  const Limits limits_;
  const std::unique_ptr<kernels::Weight> embed_;  // [V, E]
  const std::unique_ptr<kernels::Weight> fc_;     // [E, 2 E]
  const Tensor fc_bias_;                          // [E] f32, or empty
  const Tensor embed_norm_;                       // [E] f32, or empty
  const Tensor head_norm_;                        // [E] f32, or empty
  const float eps_;
  DrafterBlocks blocks_;
  const std::unique_ptr<kernels::Weight> lm_head_;  // [V, E]
  DraftHead head_;
  SlotOutputs outputs_;
  model::DeviceBatch batch_;

  // The activations of one pass.
  Tensor embedded_;  // [T, E] f32
  Tensor hidden_;    // [T, E] f32: the features, then the residual stream
  Tensor narrow_;    // [T, E] bf16
  Tensor pair_;      // [T, 2 E] bf16
};

constexpr char kEmbedNorm[] = "embed_layernorm.weight", kHeadNorm[] = "lm_head_layernorm.weight";
constexpr char kInputNorm[] = "layers.0.input_layernorm.weight";

// The tensor's name in the descriptions, from its name in the authors' files or in those of speculators.
std::string EagleTensorName(absl::string_view stored) {
  absl::ConsumePrefix(&stored, "model.");
  if (stored == "embedding_layernorm.weight" || stored == "post_embedding_layernorm.weight") return kEmbedNorm;
  if (stored == "hidden_layernorm.weight") return kInputNorm;
  if (stored == "pre_lm_head_layernorm.weight") return kHeadNorm;
  if (absl::ConsumePrefix(&stored, "fusion_fc.")) return absl::StrCat("fc.", stored);
  if (absl::ConsumePrefix(&stored, "transformer.")) return absl::StrCat("layers.0.", stored);
  return std::string(stored);
}

// Refuses what would change the function, and heads of the third generation. A norm at the layer's input comes with
// that of the embedding, or belongs to another method.
absl::Status CheckEagleTensors(const DrafterTensors& tensors, int64_t hidden_size) {
  const auto refusal = [&](absl::string_view name) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensors.directory(), ": expected a head of EAGLE-1 or -2, which has no tensor ", name));
  };
  for (const char* const name : {"hidden_norm.weight", "norm.weight", "midlayer.hidden_norm.weight"}) {
    if (tensors.Contains(name)) return refusal(name);
  }
  if (tensors.Contains(kInputNorm) && !tensors.Contains(kEmbedNorm)) {
    return refusal(absl::StrCat(kInputNorm, " without ", kEmbedNorm));
  }
  FT_ASSIGN_OR_RETURN(const Shape fc, tensors.ShapeOf("fc.weight", 2));
  if (fc[1] == 2 * hidden_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(tensors.directory(), ": tensor fc.weight: expected 2 hidden_size = ",
                                                 2 * hidden_size, " inputs, as EAGLE-1 has, got ", fc[1]));
}

absl::StatusOr<model::ModelConfig> ReadEagleConfig(const DraftOptions& options, const TargetFiles& target) {
  const std::string path = options.model_directory + "/config.json";
  FT_ASSIGN_OR_RETURN(nlohmann::json object, base::ReadJson(path));
  if (!object.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": expected a JSON object"));
  FT_ASSIGN_OR_RETURN(const model::JsonFields fields, model::JsonFields::Parse(object.dump(), path));
  if (fields.Has("transformer_layer_config")) {
    FT_RETURN_IF_ERROR(fields.Object("transformer_layer_config").status());
    object = nlohmann::json(object["transformer_layer_config"]);
  }
  FT_ASSIGN_OR_RETURN(model::ModelConfig config, ReadBlockConfig(std::move(object), path, SizesOf(target)));
  if (config.hidden_size != target.config.hidden_size) {
    return fields.Error("hidden_size", "expects the target's hidden size ", target.config.hidden_size, ", got ",
                        config.hidden_size);
  }
  FT_RETURN_IF_ERROR(CheckVocabulary(fields, config.vocab_size, target));
  return config;
}

absl::StatusOr<EagleWeights> LoadWeights(const model::ModelConfig& config, const TargetFiles& target,
                                         const DrafterTensors& tensors) {
  const int64_t hidden = config.hidden_size;
  EagleWeights weights;
  FT_ASSIGN_OR_RETURN(weights.embed, LoadDraftEmbedding(config, tensors, target));
  FT_ASSIGN_OR_RETURN(weights.fc, tensors.Matrix({{"fc.weight", Shape(hidden, 2 * hidden)}}));
  if (tensors.Contains("fc.bias")) {
    FT_ASSIGN_OR_RETURN(weights.fc_bias, tensors.Vector(model::WeightName{"fc.bias", Shape(hidden)}));
  }
  const auto norm = [&](const char* name) {
    return tensors.Vector(tensors.Contains(name) ? std::optional(model::WeightName{name, Shape(hidden)})
                                                 : std::nullopt);
  };
  FT_ASSIGN_OR_RETURN(weights.embed_norm, norm(kEmbedNorm));
  FT_ASSIGN_OR_RETURN(weights.head_norm, norm(kHeadNorm));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool has_input_norm = layer > 0 || tensors.Contains(kInputNorm);
    const BlockShape shape = {.layer = layer, .qkv_inputs = hidden, .has_input_norm = has_input_norm};
    FT_ASSIGN_OR_RETURN(weights.layers.emplace_back(), LoadBlock(config, shape, tensors));
  }
  FT_ASSIGN_OR_RETURN(
      weights.head,
      LoadDraftHead({.vocab_size = config.vocab_size, .draft_vocab_size = config.vocab_size, .num_inputs = hidden},
                    tensors, target));
  FT_RETURN_IF_ERROR(tensors.CheckAllRead());
  return weights;
}

}  // namespace

absl::StatusOr<Drafter> LoadEagle(const DraftOptions& options) {
  FT_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> backend, MakeDrafterBackend(options));
  FT_ASSIGN_OR_RETURN(const TargetFiles target, OpenTarget(options.target_directory));
  FT_ASSIGN_OR_RETURN(const model::ModelConfig config, ReadEagleConfig(options, target));
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(options.model_directory));
  FT_ASSIGN_OR_RETURN(const DrafterTensors tensors,
                      DrafterTensors::Make(std::move(checkpoint), *backend, EagleTensorName));
  FT_RETURN_IF_ERROR(CheckEagleTensors(tensors, config.hidden_size));
  FT_ASSIGN_OR_RETURN(DrafterPlan plan, PlanDrafter(options, target,
                                                    {.method = "eagle",
                                                     .bytes = BytesOf(config, *backend),
                                                     .weight_bytes = tensors.num_bytes(),
                                                     .features = {.target_hidden_size = target.config.hidden_size},
                                                     .vocab_size = config.vocab_size},
                                                    *backend));
  FT_ASSIGN_OR_RETURN(EagleWeights weights, LoadWeights(config, target, tensors));
  return Drafter{.model = std::make_unique<Eagle>(std::move(backend), config, std::move(weights), plan.limits),
                 .description = std::move(plan.description)};
}

}  // namespace foretoken::proposer
