// SPDX-License-Identifier: Apache-2.0
// A Hugging Face config.json of a causal language model, as plain data.
//
//   FT_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig("models/llama"));
//
// It reads Llama, Mistral, Qwen2 and Qwen3 (dense), in the spelling of transformers 4 (rope_theta, rope_scaling,
// torch_dtype) and of transformers 5 (rope_parameters, dtype, layer_types). An absent field has the default of that
// architecture's configuration class in transformers. Sizes have no default.
// Errors: INVALID_ARGUMENT with the file, the field, the expected and the given value. A field that would change the
// model's function and is not implemented (logit soft-capping, biases of the MLP, ...) is refused by
// name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/rope.h"
#include "common/quantization/quantization_config.h"

namespace foretoken::model {

enum class Architecture { kLlama, kMistral, kQwen2, kQwen3 };

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t hidden_size = 0;              // E
  int64_t intermediate_size = 0;        // F
  int64_t num_layers = 0;               // L
  int64_t num_heads = 0;                // H, a multiple of num_kv_heads
  int64_t num_kv_heads = 0;             // K
  int64_t head_dim = 0;                 // D, even; H * D may differ from E
  int64_t vocab_size = 0;               // V, as padded in the weights; the tokenizer may have fewer
  int64_t max_position_embeddings = 0;  // the longest context; YaRN extends the file's value
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  bool tie_word_embeddings = false;    // the head shares the embedding's weight
  bool attention_bias = false;         // of q, k and v
  bool attention_output_bias = false;  // of o
  bool qk_norm = false;                // RMSNorm of every q and k head before the rotation
  // [L] With a window w the row at position p sees positions (p - w, p]; without one all of [0, p].
  std::vector<std::optional<int64_t>> sliding_windows;
  std::vector<int64_t> bos_token_ids;  // empty: none
  std::vector<int64_t> eos_token_ids;  // empty: none
  std::optional<std::string> dtype;    // as written, "bfloat16"; the tensors have their own dtypes
  quantization::QuantizationConfig quantization;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// `source` names the text in messages.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, absl::string_view source);

// Reads `directory`/config.json, and if it declares no quantisation, the file beside it that does. Instead of a
// directory it may be a GGUF file, whose header becomes a config.json first.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory);

}  // namespace foretoken::model
