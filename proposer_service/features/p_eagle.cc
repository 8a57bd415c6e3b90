// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/p_eagle.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/json_fields.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "kernels/dtype.h"
#include "proposer_service/features/block_draft.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using kernels::TensorView;
using tensor::Tensor;

// For files that do not say for how many tokens they were trained: the default of speculators.
constexpr int64_t kDefaultGuesses = 8;

// The feature of a mask row: what the verifier would make of the mask state.
std::vector<float> Project(const speculation::FeatureProjection& projection, std::vector<float> state,
                           size_t num_layers) {
  using Norm = speculation::FeatureProjection::Norm;
  const size_t num_parts = projection.norm == Norm::kPerLayer ? num_layers : 1;
  const size_t part = state.size() / num_parts;
  for (size_t begin = 0; projection.norm != Norm::kNone && begin < state.size(); begin += part) {
    double squares = 0;
    for (size_t i = begin; i < begin + part; ++i) squares += double{state[i]} * state[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(part) + projection.eps);
    for (size_t i = begin; i < begin + part; ++i) state[i] = static_cast<float>(state[i] * scale) * projection.gains[i];
  }
  std::vector<float> feature(static_cast<size_t>(projection.num_outputs));
  for (size_t n = 0; n < feature.size(); ++n) {
    double sum = 0;
    for (size_t k = 0; k < state.size(); ++k) {
      sum += double{kernels::FloatFromBf16(projection.weight[n * state.size() + k])} * state[k];
    }
    feature[n] = static_cast<float>(sum);
  }
  return feature;
}

class PEagle : public BlockDraft {
 public:
  PEagle(Eagle3Files files, const BlockForm& block_form, const std::vector<float>& mask_feature)
      : BlockDraft(std::move(files.backend), files.limits, block_form, std::move(files.weights.head)),
        eps_(static_cast<float>(files.config.block.rms_norm_eps)),
        head_norm_(std::move(files.weights.head_norm)),
        layers_(files.config, files.weights, backend(), LimitsOf(files.limits, block_form)),
        mask_feature_(Tensor::FromHost(backend(), mask_feature)),
        lists_(backend(), 3, files.limits.max_rows),
        root_features_(backend(), DType::kBF16, Shape(files.limits.max_rows, block_form.hidden_size)),
        hidden_(backend(), DType::kF32, Shape(files.limits.max_rows, block_form.hidden_size)),
        normed_(backend(), DType::kBF16, Shape(files.limits.max_rows, block_form.hidden_size)) {}

 private:
  const kernels::KvCacheView& kv() const override { return layers_.kv(); }

  void ReadContext(const kernels::BatchView& batch, const TensorView& features) override {
    const TensorView hidden = hidden_.rows(batch.num_rows);
    backend().CopyRows({.x = features, .num_rows = batch.num_rows, .out = hidden});
    layers_.Run(batch, hidden);
  }

  ConstTensorView RunBlocks(const Blocks& blocks) override {
    const kernels::BatchView& batch = blocks.causal.batch;
    const TensorView hidden = hidden_.rows(batch.num_rows), normed = normed_.rows(batch.num_rows);
    backend().Copy(root_features_.view().data, blocks.root_features.data(), blocks.root_features.size_bytes(),
                   kernels::CopyKind::kToDevice);
    std::vector<int32_t> roots, masks;
    for (int32_t row = 0; row < batch.num_rows; ++row) {
      (row % form().num_rows == 0 ? roots : masks).push_back(row);
    }
    backend().CopyRows({.x = root_features_.view(),
                        .to = lists_.Upload(roots, 0),
                        .num_rows = static_cast<int32_t>(roots.size()),
                        .out = hidden});
    if (!masks.empty()) {
      backend().CopyRows({.x = {mask_feature_.view().data, DType::kF32, Shape(1, form().hidden_size)},
                          .from = lists_.Upload(std::vector<int32_t>(masks.size()), 1),
                          .to = lists_.Upload(masks, 2),
                          .num_rows = static_cast<int32_t>(masks.size()),
                          .out = hidden});
    }
    layers_.Run(batch, hidden);
    backend().RmsNorm({.x = hidden, .gain = head_norm_.f32(), .eps = eps_, .out = normed});
    return normed;
  }

  const float eps_;
  const Tensor head_norm_;  // [E] f32
  Eagle3Layers layers_;
  const Tensor mask_feature_;  // [E] f32
  DeviceLists lists_;

  // The activations of one pass.
  Tensor root_features_;  // [T, E] bf16
  Tensor hidden_;         // [T, E] f32
  Tensor normed_;         // [T, E] bf16
};

absl::StatusOr<int32_t> ReadMaskToken(const model::JsonFields& config, int64_t vocab_size) {
  for (const char* const name : {"mask_token_id", "ptd_token_id", "pard_token"}) {
    if (!config.Has(name)) continue;
    FT_ASSIGN_OR_RETURN(const int64_t id, config.Required<int64_t>(name));
    if (id >= 0 && id < vocab_size) return static_cast<int32_t>(id);
    return config.Error(name, "expects 0 to ", vocab_size - 1, ", got ", id);
  }
  return config.Error("mask_token_id", "is missing; so are ptd_token_id and pard_token");
}

absl::StatusOr<BlockForm> ReadForm(const std::string& directory, const Eagle3Files& files) {
  constexpr int64_t kMaxGuesses = kernels::kKvBlockSize;  // so many outputs take what the plan of EAGLE-3 has for them
  constexpr char kGuesses[] = "/speculators_config/proposal_methods/0/speculative_tokens";
  const std::string path = directory + "/config.json";
  FT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  FT_ASSIGN_OR_RETURN(const model::JsonFields config, model::JsonFields::Parse(text, path));
  FT_ASSIGN_OR_RETURN(const nlohmann::json object, base::ParseJson(text, path));
  BlockForm form{.replaces_root = true, .hidden_size = files.config.block.hidden_size};
  FT_ASSIGN_OR_RETURN(form.mask_token_id, ReadMaskToken(config, files.config.block.vocab_size));
  const nlohmann::json::json_pointer place(kGuesses);
  const nlohmann::json guesses = object.contains(place) ? object[place] : nlohmann::json(kDefaultGuesses);
  if (!guesses.is_number_integer() || guesses < 1 || guesses > kMaxGuesses) {
    return config.Error(kGuesses, "expects 1 to ", kMaxGuesses, ", got ",
                        guesses.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  form.num_rows = std::min(guesses.get<int32_t>(), files.limits.max_rows);
  return form;
}

}  // namespace

absl::StatusOr<Drafter> MakePEagle(Eagle3Files files, const DraftOptions& options) {
  const speculation::TargetFeatures& features = *files.description.features;
  if (!features.projection.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.model_directory, ": use_aux_hidden_state expects true in a head with mask_hidden"));
  }
  FT_ASSIGN_OR_RETURN(BlockForm form, ReadForm(options.model_directory, files));
  form.max_kept_logit_bytes = options.max_kept_logit_bytes;
  files.limits.max_steps = form.num_guesses();
  const std::vector<float> mask_feature = Project(*features.projection, files.mask_state, features.layers.size());
  spdlog::info("eagle3: a P-EAGLE head, which guesses {} tokens in one pass", form.num_guesses());
  Drafter drafter{.description = std::move(files.description)};
  drafter.model = std::make_unique<PEagle>(std::move(files), form, mask_feature);
  return drafter;
}

}  // namespace foretoken::proposer
