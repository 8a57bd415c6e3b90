// SPDX-License-Identifier: Apache-2.0
#include "common/model/checkpoint_fit.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/model/weight_names.h"

namespace foretoken::model {
namespace {

using kernels::ConstTensorView;
using quantization::FoundWeight;

constexpr size_t kPieceBytes = size_t{8} << 20;  // bytes of each tensor between two releases
constexpr size_t kMaxShownNames = 3;
constexpr size_t kMaxShownBytes = 80;  // bytes of a name

bool HoldSameBytes(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.dtype != b.dtype || a.num_bytes() != b.num_bytes()) return false;
  bool is_same = true;
  for (size_t at = 0; is_same && at < a.num_bytes(); at += kPieceBytes) {
    const size_t length = std::min(kPieceBytes, a.num_bytes() - at);
    is_same = std::memcmp(a.as<std::byte>() + at, b.as<std::byte>() + at, length) == 0;
    weights::ReleasePages(a.as<std::byte>() + at, length);
    weights::ReleasePages(b.as<std::byte>() + at, length);
  }
  return is_same;
}

// The name of a head that is not tied.
WeightName HeadName(ModelConfig config) {
  config.tie_word_embeddings = false;
  return NameWeights(config).head;
}

// Whether the tensor belongs to a part that is left out by design: to layers for multi-token prediction, or to what a
// multimodal model has beside its text part.
bool IsOfAnotherPart(absl::string_view name, const ModelConfig& config) {
  if (absl::StartsWith(name, "mtp.")) return true;
  absl::string_view layer = name;
  int64_t layer_idx = 0;
  if (absl::ConsumePrefix(&layer, absl::StrCat(config.prefixes.body, "layers.")) &&
      absl::SimpleAtoi(layer.substr(0, layer.find('.')), &layer_idx)) {
    return layer_idx >= config.num_layers && layer_idx < config.num_layers + config.num_prediction_layers;
  }
  if (!config.is_text_part) return false;
  absl::ConsumePrefix(&name, "model.");
  return std::ranges::any_of(
      std::array{"vision_tower.", "visual.", "multi_modal_projector.", "audio_tower.", "embed_vision.", "embed_audio."},
      [&](const char* part) { return absl::StartsWith(name, part); });
}

// A line for the log; unset: the model reads every tensor that matters.
std::optional<std::string> DescribeUnread(const quantization::OpenedWeights& opened, const ModelConfig& config) {
  const weights::Checkpoint& checkpoint = *opened.checkpoint();
  absl::flat_hash_set<std::string> read;
  std::vector<WeightName> weights = ListWeights(NameWeights(config));
  weights.push_back(HeadName(config));  // may stand beside a tied embedding as an equal copy
  for (WeightName& weight : weights) {
    // A weight that is missing or damaged is an error where it is loaded.
    if (const auto found = opened.Find(weight.name, weight.shape, config.quantization); found.ok()) {
      for (const quantization::NamedTensor& named : (*found)->tensors) read.insert(named.name);
    } else {
      read.insert(std::move(weight.name));
    }
  }
  const auto is_read = [&](const std::string& name) {
    // Old checkpoints store these frequencies. They follow from the configuration.
    return read.contains(name) || absl::EndsWith(name, ".rotary_emb.inv_freq") || IsOfAnotherPart(name, config);
  };
  std::vector<std::string> unread = checkpoint.Names();
  std::erase_if(unread, is_read);
  if (unread.empty()) return std::nullopt;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(unread.size(), kMaxShownNames); ++i) {
    shown.push_back(absl::Utf8SafeCHexEscape(absl::string_view(unread[i]).substr(0, kMaxShownBytes)));
  }
  return absl::StrCat(checkpoint.directory(), ": the model does not use ", unread.size(),
                      " of the checkpoint's tensors: ", absl::StrJoin(shown, ", "),
                      unread.size() > shown.size() ? ", ..." : "");
}

}  // namespace

void FindStoredNames(const weights::Checkpoint& checkpoint, ModelConfig& config) {
  if (config.is_text_part && !quantization::HasWeight(checkpoint, NameWeights(config).embed.name)) {
    config.prefixes = {.body = "model.language_model.", .head = ""};  // as transformers 5 writes it
  }
  const ExpertsConfig& experts = config.experts;
  const auto first = std::ranges::find(experts.layers, true);
  if (experts.num_experts == 0 || first == experts.layers.end() || experts.names == ExpertNames::kGptOss) return;
  ModelConfig fused = config;
  fused.experts.names = ExpertNames::kFused;
  const LayerWeightNames layer = NameWeights(fused).layers[static_cast<size_t>(first - experts.layers.begin())];
  if (quantization::HasWeight(checkpoint, layer.experts[0].gate_up[0].name)) config = std::move(fused);
}

absl::StatusOr<std::vector<std::string>> FitToCheckpoint(const quantization::OpenedWeights& opened,
                                                         ModelConfig& config) {
  const weights::Checkpoint& checkpoint = *opened.checkpoint();
  FindStoredNames(checkpoint, config);
  std::vector<std::string> notes;
  const WeightName head = HeadName(config);
  if (config.tie_word_embeddings && quantization::HasWeight(checkpoint, head.name)) {
    const WeightName embed = NameWeights(config).embed;
    FT_ASSIGN_OR_RETURN(const FoundWeight* found_head, opened.Find(head.name, head.shape, config.quantization));
    FT_ASSIGN_OR_RETURN(const FoundWeight* found_embed, opened.Find(embed.name, embed.shape, config.quantization));
    const bool are_plain = found_head->stored == nullptr && found_embed->stored == nullptr;
    if (!are_plain || !HoldSameBytes(found_head->floats, found_embed->floats)) {
      config.tie_word_embeddings = false;
      notes.push_back(absl::StrCat(checkpoint.directory(), ": config.json ties ", head.name, " to ", embed.name,
                                   ", but the checkpoint holds both, with different values: they are not tied"));
    }
  }
  if (std::optional<std::string> unread = DescribeUnread(opened, config)) notes.push_back(*std::move(unread));
  return notes;
}

}  // namespace foretoken::model
