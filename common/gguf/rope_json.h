// SPDX-License-Identifier: Apache-2.0
// The `rope_scaling` of a config.json for a GGUF model: from the keys ARCHITECTURE.rope.scaling.*, and from the tensor
// rope_freqs.weight, which divides the frequency of each rotary pair.
//
// Converters compute that tensor from Llama 3's four numbers and do not store the numbers. If the tensor holds what the
// numbers of a published Llama 3 give, the result has these numbers, so that the model has the same frequencies as in
// its Hugging Face form. Otherwise it has the type "divisors" with the tensor's values.
// Errors: INVALID_ARGUMENT with the file, the key or tensor, the expected and the given value.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_model.h"
#include "nlohmann/json.hpp"

namespace foretoken::gguf {

struct RopeSource {
  const GgufModel& model;
  std::string architecture;
  double theta = 0;
  int64_t head_dim = 0;
};

// Null: the frequencies are not scaled.
absl::StatusOr<nlohmann::json> RopeScalingJson(const RopeSource& source);

}  // namespace foretoken::gguf
