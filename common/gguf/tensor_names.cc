// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/tensor_names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace foretoken::gguf {
namespace {

struct Role {
  absl::string_view gguf;
  absl::string_view hugging_face;
};

constexpr Role kOfModel[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

constexpr Role kOfLayer[] = {
    {"attn_norm.weight", "input_layernorm.weight"},    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},      {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"}, {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},          {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},     {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"}, {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},       {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
};

template <size_t kCount>
std::optional<absl::string_view> Find(const Role (&roles)[kCount], absl::string_view name) {
  for (const Role& role : roles) {
    if (role.gguf == name) return role.hugging_face;
  }
  return std::nullopt;
}

struct LayerTensor {
  absl::string_view layer;  // digits
  absl::string_view role;
};

// "blk.12.attn_q.weight"
std::optional<LayerTensor> ParseLayerTensor(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "blk.")) return std::nullopt;
  const size_t end = name.find('.');
  const absl::string_view layer = name.substr(0, end);
  const bool is_number = !layer.empty() && layer.size() <= 5 && std::ranges::all_of(layer, absl::ascii_isdigit) &&
                         (layer == "0" || layer[0] != '0');
  if (end == absl::string_view::npos || !is_number) return std::nullopt;
  return LayerTensor{.layer = layer, .role = name.substr(end + 1)};
}

}  // namespace

std::optional<std::string> HuggingFaceName(absl::string_view name) {
  if (const auto of_model = Find(kOfModel, name)) return std::string(*of_model);
  const std::optional<LayerTensor> tensor = ParseLayerTensor(name);
  if (!tensor) return std::nullopt;
  const auto role = Find(kOfLayer, tensor->role);
  if (!role) return std::nullopt;
  return absl::StrCat("model.layers.", tensor->layer, ".", *role);
}

absl::Status CheckTensorNames(const GgufModel& model) {
  FT_ASSIGN_OR_RETURN(const std::string architecture, model.metadata().Required<std::string>("general.architecture"));
  std::vector<std::string> unknown;
  for (const GgufFile& file : model.files()) {
    for (const auto& [name, tensor] : file.tensors()) {
      const bool is_norm_of_head = absl::StrContains(name, "attn_q_norm.") || absl::StrContains(name, "attn_k_norm.");
      const bool is_output_bias = absl::EndsWith(name, "attn_output.bias");
      const bool is_foreign =
          (is_norm_of_head && architecture != "qwen3") || (is_output_bias && architecture == "qwen2");
      if (name != kRopeFactors && (!HuggingFaceName(name) || is_foreign)) unknown.push_back(name);
    }
  }
  if (unknown.empty()) return absl::OkStatus();
  std::ranges::sort(unknown);
  return model.metadata().Error(absl::StrCat("tensor ", absl::Utf8SafeCHexEscape(unknown.front())),
                                "a model of architecture ", architecture, " does not read it");
}

absl::StatusOr<std::optional<int64_t>> InterleavedHeadDim(const Metadata& metadata) {
  FT_ASSIGN_OR_RETURN(const std::string architecture, metadata.Required<std::string>("general.architecture"));
  if (architecture != "llama") return std::optional<int64_t>();
  FT_ASSIGN_OR_RETURN(const int64_t head_dim, HeadDim(metadata, architecture));
  return std::optional<int64_t>(head_dim);
}

bool IsRotated(absl::string_view name) {
  const std::optional<LayerTensor> tensor = ParseLayerTensor(name);
  return tensor && (absl::StartsWith(tensor->role, "attn_q.") || absl::StartsWith(tensor->role, "attn_k."));
}

absl::StatusOr<int64_t> HeadDim(const Metadata& metadata, const std::string& architecture) {
  const std::string heads_key = architecture + ".attention.head_count",
                    length_key = architecture + ".attention.key_length";
  FT_ASSIGN_OR_RETURN(const int64_t width, metadata.Required<int64_t>(architecture + ".embedding_length"));
  FT_ASSIGN_OR_RETURN(const int64_t num_heads, metadata.Required<int64_t>(heads_key));
  FT_ASSIGN_OR_RETURN(const auto given, metadata.Optional<int64_t>(length_key));
  if (!given && (num_heads < 1 || width % num_heads != 0)) {
    return metadata.Error(heads_key, "expected a divisor of embedding_length ", width, ", got ", num_heads);
  }
  const int64_t head_dim = given ? *given : width / num_heads;
  if (head_dim >= 2 && head_dim % 2 == 0) return head_dim;
  return metadata.Error(given ? length_key : heads_key, "expected heads of an even number of inputs, got ", head_dim);
}

}  // namespace foretoken::gguf
