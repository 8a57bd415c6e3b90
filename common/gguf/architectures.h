// SPDX-License-Identifier: Apache-2.0
// The architectures of the GGUF files that can be read. Each has the names of its class and its tensors at Hugging
// Face, and a list of the keys that not all architectures have.
//
//   FT_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(model.metadata()));
//   HuggingFaceName(*architecture, "blk.0.attn_q.weight")  // "model.layers.0.self_attn.q_proj.weight"
//
// Errors: INVALID_ARGUMENT with the file, the key, the expected and the given value.
// Source: llama.cpp, gguf-py/gguf/constants.py and tensor_mapping.py for the names, conversion/ for the values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/metadata.h"

namespace foretoken::gguf {

// A key ARCHITECTURE.ending, and the field of config.json that it is. If it is absent, so is the field.
struct KeyOfField {
  absl::string_view ending;
  const char* field;
  bool is_whole;  // an integer; otherwise any number
};

// What a tensor is called in GGUF and at Hugging Face, without the name's layer.
struct TensorRole {
  absl::string_view gguf;
  absl::string_view hugging_face;
};

// What makes weights of an expert's scores, as numbered in the file.
enum class ExpertWeighting : uint8_t { kNoExperts = 0, kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3 };

struct Architecture {
  const char* name;        // general.architecture
  const char* class_name;  // in config.json
  const char* model_type;  // in config.json
  std::vector<std::span<const TensorRole>> roles;
  std::vector<KeyOfField> keys;
  ExpertWeighting weighting = ExpertWeighting::kNoExperts;
  // Of q and k: the row 2j of a head of D rows is row j of Hugging Face, and the row 2j + 1 is row j + D/2.
  bool interleaves_heads = false;
  bool may_turn_parts = false;       // rope.dimension_count may be less than a head
  bool rounds_yarn = true;           // the bounds of YaRN are rounded to whole dimensions
  bool has_declared_biases = false;  // attention_bias says whether q, k and v have biases
  // Scores have the scale 1 / sqrt(width / heads) in Gemma's largest model, which has so many layers, and
  // 1 / sqrt(head) in the others. 0: no Gemma.
  int64_t layers_with_wide_scale = 0;

  bool has_experts() const { return weighting != ExpertWeighting::kNoExperts; }
};

// Of two with one name it is the one that has experts if and only if the file has them: llama is Llama or Mixtral.
absl::StatusOr<const Architecture*> FindArchitecture(const Metadata& metadata);

// Unset: the architecture reads no tensor of this name. A stack of experts gets the stack's name (expert_stacks.h).
std::optional<std::string> HuggingFaceName(const Architecture& architecture, absl::string_view name);

// Whether the tensor, by its GGUF name, is q or k.
bool IsRotated(absl::string_view name);

// The inputs of a head: attention.key_length, or else the width divided by the heads.
absl::StatusOr<int64_t> HeadDim(const Metadata& metadata, const Architecture& architecture);

}  // namespace foretoken::gguf
