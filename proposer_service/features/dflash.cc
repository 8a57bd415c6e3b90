// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/dflash.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/json_fields.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "proposer_service/features/block_draft.h"
#include "proposer_service/features/drafter_blocks.h"
#include "proposer_service/features/drafter_setup.h"
#include "proposer_service/features/drafter_tensors.h"
#include "proposer_service/features/eagle3_config.h"
#include "proposer_service/features/feature_layers.h"
#include "proposer_service/features/markov_head.h"
#include "proposer_service/features/target_files.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using kernels::TensorView;
using model::JsonFields;
using tensor::Tensor;

constexpr char kMarkov[] = "markov_head.markov_w1.weight", kConfidence[] = "confidence_head.proj.weight";

struct DflashConfig {
  model::ModelConfig block;  // of the drafter; vocab_size is the target's, as the drafter's file says it
  int64_t draft_vocab_size = 0;
  FeatureLayers layers;
  BlockForm form;
  bool is_dspark = false;
  int64_t markov_rank = 0;  // 0: there is no Markov head
};

struct DflashWeights {
  std::unique_ptr<kernels::Weight> embed;  // [V, E]
  std::vector<model::LayerWeights> layers;
  Tensor hidden_norm;  // [E] f32
  Tensor norm;         // [E] f32
  DraftHeadParts head;
  MarkovHead::Weights markov;
};

class Dflash : public BlockDraft {
 public:
  Dflash(std::unique_ptr<kernels::Backend> made, const DflashConfig& config, DflashWeights weights,
         const Limits& limits)
      : BlockDraft(std::move(made), limits, config.form, std::move(weights.head)),
        eps_(static_cast<float>(config.block.rms_norm_eps)),
        embed_(std::move(weights.embed)),
        hidden_norm_(std::move(weights.hidden_norm)),
        norm_(std::move(weights.norm)),
        blocks_(config.block, std::move(weights.layers), backend(), LimitsOf(limits, config.form)),
        hidden_(backend(), DType::kF32, Shape(limits.max_rows, config.block.hidden_size)),
        normed_(backend(), DType::kBF16, Shape(limits.max_rows, config.block.hidden_size)) {
    if (config.is_dspark) markov_.emplace(std::move(weights.markov), backend(), limits.max_rows);
  }

  void Synchronize() override {
    BlockDraft::Synchronize();
    if (markov_.has_value()) confidences_ = markov_->Confidences();
  }
  std::span<const float> confidences() const override { return confidences_; }

 private:
  const kernels::KvCacheView& kv() const override { return blocks_.kv(); }

  void ReadContext(const kernels::BatchView& batch, const TensorView& features) override {
    const TensorView hidden = hidden_.rows(batch.num_rows), normed = normed_.rows(batch.num_rows);
    backend().CopyRows({.x = features, .num_rows = batch.num_rows, .out = hidden});
    backend().RmsNorm({.x = hidden, .gain = hidden_norm_.f32(), .eps = eps_, .out = normed});
    for (int32_t layer = 0; layer < blocks_.num_layers(); ++layer) blocks_.StoreKv(batch, layer, normed);
  }

  ConstTensorView RunBlocks(const Blocks& blocks) override {
    const TensorView hidden = hidden_.rows(blocks.batch.num_rows), normed = normed_.rows(blocks.batch.num_rows);
    backend().Embed({.weight = embed_.get(), .token_ids = blocks.batch.token_ids, .out = hidden});
    for (int32_t layer = 0; layer < blocks_.num_layers(); ++layer) {
      blocks_.Run(blocks.batch, layer, hidden, blocks.last_seen);
    }
    backend().RmsNorm({.x = hidden, .gain = norm_.f32(), .eps = eps_, .out = normed});
    return normed;
  }

  std::optional<DraftHead::Term> LogitTerm(const ConstTensorView& outputs, const int32_t* token_ids) override {
    if (!markov_.has_value()) return std::nullopt;
    return markov_->Term(outputs, token_ids);
  }

  const float eps_;
  const std::unique_ptr<kernels::Weight> embed_;  // [V, E]
  const Tensor hidden_norm_;                      // [E] f32
  const Tensor norm_;                             // [E] f32
  DrafterBlocks blocks_;
  std::optional<MarkovHead> markov_;
  std::vector<float> confidences_;

  // The activations of one pass.
  Tensor hidden_;  // [T, E] f32
  Tensor normed_;  // [T, E] bf16
};

// The described name of a stored tensor: without "model.", and "fc" and "hidden_norm" for the encoder's.
std::string DescribedName(absl::string_view stored) {
  absl::ConsumePrefix(&stored, "model.");
  if (stored == "encoder.fc.weight") return "fc.weight";
  if (stored == "encoder.output_norm_enc.weight") return "hidden_norm.weight";
  return std::string(stored);
}

// What this reader would compute wrongly.
absl::Status CheckTensors(const DrafterTensors& tensors, const std::string& directory) {
  static constexpr std::pair<const char*, const char*> kOthers[] = {
      {"layers.0.self_attn.attention_sink_bias", "attention sinks, which are not supported"},
      {"layers.0.attention_conv.base_kernel", "DFlash 2, which is not supported"},
      {"markov_head.gate_proj.weight", "a gated Markov head; only the vanilla one is supported"},
      {"markov_head.joint_proj.weight", "a recurrent Markov head; only the vanilla one is supported"}};
  for (const auto& [name, what] : kOthers) {
    if (tensors.Contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensors.directory(), ": expected a DFlash or DSpark drafter, got tensor ", name, " of ", what));
    }
  }
  std::error_code ignored;
  if (std::filesystem::exists(directory + "/mask_embedding.pt", ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory, ": mask_embedding.pt is a pickle, which can run code: write its values into row mask_token_id of a ",
        "tensor embed_tokens.weight in model.safetensors"));
  }
  return absl::OkStatus();
}

// A key that stands in `nested`, or at the top.
template <typename T>
absl::StatusOr<std::optional<T>> Either(const std::optional<JsonFields>& nested, const JsonFields& config,
                                        const std::string& name) {
  if (nested.has_value()) {
    FT_ASSIGN_OR_RETURN(std::optional<T> value, nested->Optional<T>(name));
    if (value.has_value()) return value;
  }
  return config.Optional<T>(name);
}

absl::Status CheckAttention(const JsonFields& config, const std::optional<JsonFields>& nested,
                            const model::ModelConfig& block) {
  FT_ASSIGN_OR_RETURN(const std::optional<bool> use_swa, Either<bool>(nested, config, "use_swa"));
  if (use_swa.value_or(false)) return config.Error("use_swa", "expects false, got true");
  for (const std::optional<int64_t>& window : block.sliding_windows) {
    if (window.has_value()) return config.Error("layer_types", "expects full_attention, got a sliding window");
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockForm> ReadForm(const JsonFields& config, const std::optional<JsonFields>& nested,
                                   const DflashConfig& read) {
  constexpr int64_t kMaxBlock = 64;
  FT_ASSIGN_OR_RETURN(const auto is_causal, config.Optional<bool>("is_causal"));
  FT_ASSIGN_OR_RETURN(const auto causal, Either<bool>(nested, config, "causal"));
  FT_ASSIGN_OR_RETURN(const auto from_anchor, Either<bool>(nested, config, "sample_from_anchor"));
  FT_ASSIGN_OR_RETURN(const auto block_size, Either<int64_t>(nested, config, "block_size"));
  const bool is_speculators = config.Has("speculators_model_type");
  const int64_t size = block_size.value_or(read.is_dspark ? 7 : is_speculators ? 8 : 16);
  const int64_t first_guess = from_anchor.value_or(read.is_dspark) ? 0 : 1;
  if (size <= first_guess || size > kMaxBlock) {
    return config.Error("block_size", "expects ", first_guess + 1, " to ", kMaxBlock, ", got ", size);
  }
  FT_ASSIGN_OR_RETURN(std::optional<int64_t> mask, Either<int64_t>(nested, config, "mask_token_id"));
  if (!mask.has_value()) {
    FT_ASSIGN_OR_RETURN(mask, Either<int64_t>(nested, config, "dspark_noise_token_id"));
  }
  if (!mask.has_value()) return config.Error("mask_token_id", "is missing");
  if (*mask < 0 || *mask >= read.block.vocab_size) {
    return config.Error("mask_token_id", "expects 0 to ", read.block.vocab_size - 1, ", got ", *mask);
  }
  return BlockForm{.num_rows = static_cast<int32_t>(size),
                   .first_guess = static_cast<int32_t>(first_guess),
                   .is_causal = is_causal.value_or(causal.value_or(false)),
                   .mask_token_id = static_cast<int32_t>(*mask),
                   .hidden_size = read.block.hidden_size};
}

// Sets is_dspark and markov_rank. A DSpark drafter may have no Markov head.
absl::Status ReadDspark(const JsonFields& config, const std::optional<JsonFields>& nested,
                        const DrafterTensors& tensors, DflashConfig& read) {
  constexpr int64_t kMaxRank = 65'536;
  FT_ASSIGN_OR_RETURN(const auto rank, Either<int64_t>(nested, config, "markov_rank"));
  if (rank.has_value() && (*rank < 0 || *rank > kMaxRank)) {
    return config.Error("markov_rank", "expects 0 to ", kMaxRank, ", got ", *rank);
  }
  if (rank.has_value()) {
    read.markov_rank = *rank;
  } else if (tensors.Contains(kMarkov)) {
    FT_ASSIGN_OR_RETURN(const Shape shape, tensors.ShapeOf(kMarkov, 2));
    read.markov_rank = shape[1];
  }
  FT_ASSIGN_OR_RETURN(auto names, config.OrDefault<std::vector<std::string>>("architectures", {}));
  FT_ASSIGN_OR_RETURN(names.emplace_back(), config.OrDefault<std::string>("speculators_model_type", ""));
  const bool is_named = std::ranges::any_of(
      names, [](const std::string& name) { return absl::StrContains(absl::AsciiStrToLower(name), "dspark"); });
  read.is_dspark = is_named || rank.has_value() || tensors.Contains(kMarkov) || tensors.Contains(kConfidence);
  return absl::OkStatus();
}

absl::Status CheckFit(const JsonFields& config, const std::optional<JsonFields>& nested, const TargetFiles& target,
                      const DflashConfig& read) {
  FT_RETURN_IF_ERROR(CheckVocabulary(config, read.block.vocab_size, target));
  if (read.draft_vocab_size < 1 || read.draft_vocab_size > read.block.vocab_size) {
    return config.Error("draft_vocab_size", "expects 1 to vocab_size ", read.block.vocab_size, ", got ",
                        read.draft_vocab_size);
  }
  FT_ASSIGN_OR_RETURN(const auto num_layers, Either<int64_t>(nested, config, "num_target_layers"));
  if (num_layers.value_or(target.config.num_layers) != target.config.num_layers) {
    return config.Error("num_target_layers", "expects ", target.config.num_layers, ", as the target has, got ",
                        *num_layers);
  }
  return absl::OkStatus();
}

absl::StatusOr<DflashConfig> ReadConfig(const DraftOptions& options, const TargetFiles& target,
                                        const DrafterTensors& tensors) {
  const std::string path = options.model_directory + "/config.json";
  FT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  FT_ASSIGN_OR_RETURN(const JsonFields config, JsonFields::Parse(text, path));
  FT_ASSIGN_OR_RETURN(nlohmann::json object, base::ParseJson(text, path));
  FT_ASSIGN_OR_RETURN(const std::optional<JsonFields> nested, config.Object("dflash_config"));
  if (config.Has("transformer_layer_config")) {
    FT_RETURN_IF_ERROR(config.Object("transformer_layer_config").status());
    object = nlohmann::json(object["transformer_layer_config"]);
  }
  if (!object.contains("model_type")) object["model_type"] = "qwen3";
  DflashConfig read;
  FT_ASSIGN_OR_RETURN(read.block, ReadBlockConfig(std::move(object), path, SizesOf(target)));
  read.block.qk_norm = tensors.Contains("layers.0.self_attn.q_norm.weight");
  FT_ASSIGN_OR_RETURN(read.draft_vocab_size, config.OrDefault<int64_t>("draft_vocab_size", read.block.vocab_size));
  FT_RETURN_IF_ERROR(CheckFit(config, nested, target, read));
  FT_RETURN_IF_ERROR(CheckAttention(config, nested, read.block));
  FT_RETURN_IF_ERROR(ReadDspark(config, nested, tensors, read));
  FT_ASSIGN_OR_RETURN(read.form, ReadForm(config, nested, read));
  read.form.max_kept_logit_bytes = options.max_kept_logit_bytes;
  const int64_t num_target_layers = target.config.num_layers;
  FT_ASSIGN_OR_RETURN(read.layers, ResolveFeatureLayers(config, options.feature_layers, num_target_layers,
                                                        DefaultDflashLayers(num_target_layers, read.block.num_layers)));
  return read;
}

absl::StatusOr<MarkovHead::Weights> LoadMarkov(const DflashConfig& config, const DrafterTensors& tensors) {
  using kernels::WeightQuantization;
  MarkovHead::Weights markov{.rank = config.markov_rank};
  if (markov.rank > 0) {
    FT_ASSIGN_OR_RETURN(markov.by_token, tensors.Matrix({{kMarkov, Shape(config.block.vocab_size, markov.rank)}},
                                                        WeightQuantization::kNone));
    FT_ASSIGN_OR_RETURN(markov.to_logits,
                        tensors.Matrix({{"markov_head.markov_w2.weight", Shape(config.draft_vocab_size, markov.rank)}},
                                       WeightQuantization::kNone));
  }
  if (!tensors.Contains(kConfidence)) return markov;
  FT_ASSIGN_OR_RETURN(const Shape shape, tensors.ShapeOf(kConfidence, 2));
  const int64_t width = shape[1] == config.block.hidden_size ? shape[1] : config.block.hidden_size + markov.rank;
  FT_ASSIGN_OR_RETURN(markov.confidence, tensors.Floats({kConfidence, Shape(1, width)}));
  FT_ASSIGN_OR_RETURN(const std::vector<float> bias, tensors.Floats({"confidence_head.proj.bias", Shape(1)}));
  markov.confidence_bias = bias[0];
  return markov;
}

absl::StatusOr<DflashWeights> LoadWeights(const DflashConfig& config, const TargetFiles& target,
                                          const DrafterTensors& tensors) {
  const int64_t hidden = config.block.hidden_size;
  DflashWeights weights;
  FT_ASSIGN_OR_RETURN(weights.embed, LoadDraftEmbedding(config.block, tensors, target));
  for (int64_t layer = 0; layer < config.block.num_layers; ++layer) {
    FT_ASSIGN_OR_RETURN(weights.layers.emplace_back(),
                        LoadBlock(config.block, {.layer = layer, .qkv_inputs = hidden}, tensors));
  }
  FT_ASSIGN_OR_RETURN(weights.hidden_norm, tensors.Vector(model::WeightName{"hidden_norm.weight", Shape(hidden)}));
  FT_ASSIGN_OR_RETURN(weights.norm, tensors.Vector(model::WeightName{"norm.weight", Shape(hidden)}));
  FT_ASSIGN_OR_RETURN(weights.head, LoadDraftHead({.vocab_size = config.block.vocab_size,
                                                   .draft_vocab_size = config.draft_vocab_size,
                                                   .num_inputs = hidden},
                                                  tensors, target));
  FT_ASSIGN_OR_RETURN(weights.markov, LoadMarkov(config, tensors));
  FT_RETURN_IF_ERROR(tensors.CheckAllRead());
  return weights;
}

}  // namespace

absl::StatusOr<Drafter> LoadDflash(const DraftOptions& options) {
  FT_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> backend, MakeDrafterBackend(options));
  FT_ASSIGN_OR_RETURN(const TargetFiles target, OpenTarget(options.target_directory));
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(options.model_directory));
  FT_ASSIGN_OR_RETURN(const DrafterTensors tensors,
                      DrafterTensors::Make(std::move(checkpoint), *backend, DescribedName));
  FT_RETURN_IF_ERROR(CheckTensors(tensors, options.model_directory));
  FT_ASSIGN_OR_RETURN(const DflashConfig config, ReadConfig(options, target, tensors));
  DrafterNeeds needs = {.method = "dflash",
                        .bytes = BytesOf(config.block),
                        .weight_bytes = tensors.num_bytes(),
                        .vocab_size = config.block.vocab_size,
                        .pass_bytes = static_cast<size_t>(options.max_kept_logit_bytes)};
  FT_ASSIGN_OR_RETURN(needs.features, ReadProjectedFeatures(config.layers, config.block.hidden_size, target, tensors));
  needs.bytes.output = BlockDraft::OutputBytes(config.form);
  FT_ASSIGN_OR_RETURN(DrafterPlan plan, PlanDrafter(options, target, std::move(needs), *backend));
  plan.limits.max_rows = std::max(plan.limits.max_rows, config.form.num_rows);
  plan.limits.max_steps = config.form.num_guesses();
  FT_ASSIGN_OR_RETURN(DflashWeights weights, LoadWeights(config, target, tensors));
  spdlog::info("dflash: reads {}; {} {} tokens in one pass", Describe(config.layers),
               config.is_dspark ? "a DSpark drafter, which guesses" : "guesses", config.form.num_guesses());
  return Drafter{.model = std::make_unique<Dflash>(std::move(backend), config, std::move(weights), plan.limits),
                 .description = std::move(plan.description)};
}

}  // namespace foretoken::proposer
