// SPDX-License-Identifier: Apache-2.0
// The `rope_scaling` of a config.json for a GGUF model: from the keys ARCHITECTURE.rope.scaling.*, and from tensors
// that divide the frequency of each rotary pair: rope_freqs.weight, or rope_factors_short.weight and
// rope_factors_long.weight for short and for long contexts (LongRoPE).
//
// Converters compute the first from Llama 3's four numbers and do not store the numbers. If the tensor holds what the
// numbers of a published Llama 3 give, the result has these numbers, so that the model has the same frequencies as in
// its Hugging Face form. Otherwise it has the type "divisors" with the tensor's values.
// Errors: INVALID_ARGUMENT with the file, the key or tensor, the expected and the given value.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/architectures.h"
#include "common/gguf/gguf_model.h"
#include "nlohmann/json.hpp"

namespace foretoken::gguf {

struct RopeSource {
  const GgufModel& model;
  const Architecture& architecture;
  double theta = 0;
  int64_t num_turned = 0;  // of a head's dimensions
};

// Whether the tensor, by its GGUF name, is one that only the configuration tells of.
bool IsRopeTensor(absl::string_view name);

// Null: the frequencies are not scaled.
absl::StatusOr<nlohmann::json> RopeScalingJson(const RopeSource& source);

}  // namespace foretoken::gguf
