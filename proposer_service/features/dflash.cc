// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/dflash.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "proposer_service/features/block_draft.h"
#include "proposer_service/features/dflash_config.h"
#include "proposer_service/features/markov_head.h"
#include "proposer_service/features/parts/drafter_blocks.h"
#include "proposer_service/features/parts/drafter_setup.h"
#include "proposer_service/features/parts/drafter_tensors.h"
#include "proposer_service/features/parts/target_files.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using kernels::TensorView;
using tensor::Tensor;

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
        is_causal_(config.is_causal),
        eps_(static_cast<float>(config.block.rms_norm_eps)),
        embed_(std::move(weights.embed)),
        hidden_norm_(std::move(weights.hidden_norm)),
        norm_(std::move(weights.norm)),
        blocks_(config.block, std::move(weights.layers), backend(), LimitsOf(limits, config.form)),
        hidden_(backend(), DType::kF32, Shape(limits.max_rows, config.block.hidden_size)),
        normed_(backend(), DType::kBF16, Shape(limits.max_rows, config.block.hidden_size)) {
    if (config.is_dspark) markov_.emplace(config.markov, std::move(weights.markov), backend(), limits);
  }

  void Synchronize() override {
    BlockDraft::Synchronize();
    if (markov_.has_value()) confidences_ = markov_->Confidences();
  }
  std::span<const float> confidences() const override { return confidences_; }

  void Move(std::span<const kernels::KvMove> moves) override {
    BlockDraft::Move(moves);
    if (markov_.has_value()) markov_->Move(moves);
  }

 private:
  const kernels::KvCacheView& kv() const override { return blocks_.kv(); }

  void ReadContext(const kernels::BatchView& batch, const TensorView& features) override {
    const TensorView hidden = hidden_.rows(batch.num_rows), normed = normed_.rows(batch.num_rows);
    backend().CopyRows({.x = features, .num_rows = batch.num_rows, .out = hidden});
    backend().RmsNorm({.x = hidden, .gain = hidden_norm_.f32(), .eps = eps_, .out = normed});
    for (int32_t layer = 0; layer < blocks_.num_layers(); ++layer) blocks_.StoreKv(batch, layer, normed);
  }

  ConstTensorView RunBlocks(const Blocks& blocks) override {
    const int32_t num_rows = blocks.open.batch.num_rows;
    const TensorView hidden = hidden_.rows(num_rows), normed = normed_.rows(num_rows);
    backend().Embed({.weight = embed_.get(), .token_ids = blocks.open.batch.token_ids, .out = hidden});
    for (int32_t layer = 0; layer < blocks_.num_layers(); ++layer) {
      const MaskedRows& rows = is_causal_[layer] ? blocks.causal : blocks.open;
      blocks_.Run(rows.batch, layer, hidden, rows.sight);
    }
    backend().RmsNorm({.x = hidden, .gain = norm_.f32(), .eps = eps_, .out = normed});
    return normed;
  }

  std::optional<DraftHead::Term> LogitTerm(const TreeRows& rows) override {
    if (!markov_.has_value()) return std::nullopt;
    return markov_->Term(rows);
  }

  const std::vector<bool> is_causal_;  // [L] inside a block
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
std::string DflashTensorName(absl::string_view stored) {
  absl::ConsumePrefix(&stored, "model.");
  if (stored == "encoder.fc.weight") return "fc.weight";
  if (stored == "encoder.output_norm_enc.weight") return "hidden_norm.weight";
  return std::string(stored);
}

// What this reader would compute wrongly.
absl::Status CheckFiles(const DrafterTensors& tensors) {
  constexpr char kConvolution[] = "layers.0.attention_conv.base_kernel";
  if (tensors.Contains(kConvolution)) {
    return absl::InvalidArgumentError(absl::StrCat(tensors.directory(), ": expected a DFlash or DSpark drafter, got ",
                                                   "tensor ", kConvolution, " of DFlash 2, which is not supported"));
  }
  std::error_code ignored;
  if (std::filesystem::exists(tensors.directory() + "/mask_embedding.pt", ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(
        tensors.directory(), ": mask_embedding.pt is a pickle, which can run code: write its values into row ",
        "mask_token_id of a tensor embed_tokens.weight in model.safetensors"));
  }
  return absl::OkStatus();
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
  FT_ASSIGN_OR_RETURN(weights.markov, LoadMarkovHead(config.markov, tensors));
  FT_RETURN_IF_ERROR(tensors.CheckAllRead());
  return weights;
}

}  // namespace

absl::StatusOr<Drafter> LoadDflash(const DraftOptions& options) {
  FT_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> backend, MakeDrafterBackend(options));
  FT_ASSIGN_OR_RETURN(const TargetFiles target, OpenTarget(options.target_directory));
  FT_ASSIGN_OR_RETURN(weights::Checkpoint checkpoint, weights::Checkpoint::Open(options.model_directory));
  FT_ASSIGN_OR_RETURN(const DrafterTensors tensors,
                      DrafterTensors::Make(std::move(checkpoint), *backend, DflashTensorName));
  FT_RETURN_IF_ERROR(CheckFiles(tensors));
  FT_ASSIGN_OR_RETURN(const DflashConfig config, ReadDflashConfig(options, target, tensors));
  DrafterNeeds needs = {.method = "dflash",
                        .bytes = BytesOf(config.block, *backend),
                        .weight_bytes = tensors.num_bytes(),
                        .vocab_size = config.block.vocab_size,
                        .pass_bytes = static_cast<size_t>(options.max_kept_logit_bytes)};
  FT_ASSIGN_OR_RETURN(needs.features, ReadProjectedFeatures(config.layers, config.block.hidden_size, target, tensors));
  needs.bytes.output = BlockDraft::OutputBytes(config.form) + config.markov.state_bytes();
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
