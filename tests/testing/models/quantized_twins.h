// SPDX-License-Identifier: Apache-2.0
// A small model with random weights, stored twice: quantised, and as the bf16 of the same values.
#pragma once

#include "nlohmann/json.hpp"
#include "tests/testing/models/quantized_layers.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

struct QuantizedTwins {
  TempDir quantized;
  TempDir plain;

  // Where `is_mixed`, every third matrix is plain in both, as incomplete lists of exceptions make it.
  explicit QuantizedTwins(const QuantizedFormat& format, bool is_mixed = false);

  // The model's config.json, without quantization_config.
  static nlohmann::json Config();
};

}  // namespace foretoken::testing
