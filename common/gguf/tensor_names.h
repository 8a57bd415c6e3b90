// SPDX-License-Identifier: Apache-2.0
// What GGUF's tensors are in a Hugging Face checkpoint of the same model.
//
//   HuggingFaceName("blk.0.attn_q.weight")  // "model.layers.0.self_attn.q_proj.weight"
//
// Llama's files hold the rows of q and k in another order: within a head of D rows the row 2j is row j of Hugging Face,
// and the row 2j + 1 is row j + D/2. Other architectures keep the order.
// Source: llama.cpp, gguf-py/gguf/tensor_mapping.py and LlamaModel.permute of its converter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/gguf_model.h"

namespace foretoken::gguf {

// Factors of the rotary frequencies. The configuration holds what they say.
inline constexpr absl::string_view kRopeFactors = "rope_freqs.weight";

// Unset: no tensor of a model that we read has this name.
std::optional<std::string> HuggingFaceName(absl::string_view name);

// OK if the model reads every tensor of the file. Errors: INVALID_ARGUMENT with one that it would not read.
absl::Status CheckTensorNames(const GgufModel& model);

// The rows of a head in which q and k are interleaved. Unset: no tensor is. Errors: as Metadata.
absl::StatusOr<std::optional<int64_t>> InterleavedHeadDim(const Metadata& metadata);
// Whether the tensor, by its GGUF name, is q or k.
bool IsRotated(absl::string_view name);

// The inputs of a head: attention.key_length, or else the width divided by the heads.
absl::StatusOr<int64_t> HeadDim(const Metadata& metadata, const std::string& architecture);

}  // namespace foretoken::gguf
