// SPDX-License-Identifier: Apache-2.0
// A Hugging Face config.json of a causal language model, as plain data.
//
//   FT_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig("models/llama"));
//
// It reads the families of families.h, in the spelling of transformers 4 (rope_theta, rope_scaling, torch_dtype) and of
// transformers 5 (rope_parameters, dtype, layer_types). What a family is, is said here by switches, so that no other
// code asks for it. Of a multimodal model it reads the text part, text_config. An absent field has the default of that
// family's configuration class in transformers. Sizes have no default, except those that published text parts leave
// out. Errors: INVALID_ARGUMENT with the file, the field, the expected and the given value. A field that would change
// the model's function and is not implemented (chunked attention, ...) is refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/config/rope.h"
#include "common/quantization/quantization_config.h"
#include "kernels/ops.h"

namespace foretoken::model {

enum class Architecture {
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kGemma2,
  kGemma3,
  kPhi3,
  kGranite,
  kSmolLm3,
  kOlmo2,
  kMixtral,
  kQwen3Moe,
  kGlm4Moe,
  kGptOss
};

// What Hugging Face calls a model's class ("LlamaForCausalLM") and its type ("llama").
const char* ClassName(Architecture architecture);
const char* ModelTypeName(Architecture architecture);

// How the names of the stored tensors begin. A multimodal model has its text part in a place of its own.
struct TensorPrefixes {
  std::string body = "model.";  // of the embedding, the layers and the final norm
  std::string head;

  friend bool operator==(const TensorPrefixes&, const TensorPrefixes&) = default;
};

// How the stored tensors of experts are called. kFused, whose gate and up are one tensor, is what transformers 5 calls
// them for all families; its writers rename them or not, so only the checkpoint shows it (checkpoint_fit.h). Of a GGUF
// file all experts are kGateUpDown or kFused.
enum class ExpertNames { kGateUpDown, kMixtral, kFused, kGptOss };

// Layers whose MLP is a choice of small ones.
struct ExpertsConfig {
  int64_t num_experts = 0;        // N; 0: no layer has any
  int64_t num_chosen = 0;         // for each token
  int64_t intermediate_size = 0;  // F of an expert
  int64_t shared_size = 0;        // F of what every token takes besides; 0: nothing
  kernels::ExpertWeighting weighting = kernels::ExpertWeighting::kSoftmaxOverChosen;
  double scale = 1;              // of the weights
  bool has_choice_bias = false;  // is added to sigmoids, in the choice alone
  bool has_biases = false;       // of the router, and of an expert's gate, up and down
  std::vector<bool> layers;      // [L] which have experts
  ExpertNames names = ExpertNames::kGateUpDown;

  friend bool operator==(const ExpertsConfig&, const ExpertsConfig&) = default;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t hidden_size = 0;              // E
  int64_t intermediate_size = 0;        // F
  int64_t num_layers = 0;               // L
  int64_t num_prediction_layers = 0;    // for multi-token prediction; stored after the L layers, and not read
  int64_t num_heads = 0;                // H, a multiple of num_kv_heads
  int64_t num_kv_heads = 0;             // K
  int64_t head_dim = 0;                 // D, even; H * D may differ from E
  int64_t vocab_size = 0;               // V, as padded in the weights; the tokenizer may have fewer
  int64_t max_position_embeddings = 0;  // the longest context; YaRN extends the file's value
  double rms_norm_eps = 1e-6;

  RopeConfig rope;
  std::optional<RopeConfig> sliding_rope;  // of the layers with a window; unset: as the others
  std::optional<int64_t> rotary_dim;       // R: the first dimensions of a head, which turn; even; unset: D
  std::vector<bool> rotates;               // [L] false: the layer turns no dimension; empty: all layers turn
  bool tie_word_embeddings = false;        // the head shares the embedding's weight
  bool attention_bias = false;             // of q, k and v
  bool attention_output_bias = false;      // of o
  bool qk_norm = false;                    // RMSNorm of every q and k head before the rotation
  bool whole_qk_norm = false;              // if qk_norm: of the whole q and the whole k instead
  // [L] With a window w the row at position p sees positions (p - w, p]; without one all of [0, p].
  std::vector<std::optional<int64_t>> sliding_windows;
  bool attention_sinks = false;           // a head has a learned score that belongs to no position
  std::optional<double> attention_scale;  // multiplies q . k; unset: 1 / sqrt(D)
  std::optional<double> attention_cap;    // c: a score s becomes c tanh(s / c)

  double norm_offset = 0;          // is added to the stored weight of every norm
  bool pre_norms = true;           // RMSNorm of what enters attention and MLP
  bool post_norms = false;         // RMSNorm of what attention and MLP add to the residual stream
  kernels::Gating gating;          // of the MLP and of experts
  bool mlp_bias = false;           // of gate, up and down
  bool fused_projections = false;  // q, k and v are stored as one, and gate and up
  ExpertsConfig experts;

  double embedding_multiplier = 1;
  double residual_multiplier = 1;  // of what attention and MLP add
  double logit_multiplier = 1;
  std::optional<double> logit_cap;  // a logit l becomes c tanh(l / c)

  std::vector<int64_t> bos_token_ids;  // empty: none
  std::vector<int64_t> eos_token_ids;  // empty: none
  std::optional<std::string> dtype;    // as written, "bfloat16"; the tensors have their own dtypes
  quantization::QuantizationConfig quantization;
  bool is_text_part = false;  // of a multimodal model; FindStoredNames finds the prefixes
  TensorPrefixes prefixes;

  int64_t turned_dims(int64_t layer) const {
    return rotates.empty() || rotates[static_cast<size_t>(layer)] ? rotary_dim.value_or(head_dim) : 0;
  }

  bool has_experts(int64_t layer) const {
    return experts.num_experts > 0 && experts.layers[static_cast<size_t>(layer)];
  }

  // The width of a layer's MLP, or of what all tokens share beside the experts.
  int64_t mlp_size(int64_t layer) const { return has_experts(layer) ? experts.shared_size : intermediate_size; }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// `source` names the text in messages.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, absl::string_view source);

// Reads `directory`/config.json, and if it declares no quantisation, the file beside it that does. Instead of a
// directory it may be a GGUF file, whose header becomes a config.json first.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory);

}  // namespace foretoken::model
