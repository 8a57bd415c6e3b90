// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: the angular speed of each pair of a head, with the scalings that do not depend on the
// current length.
//
//   const RopeFrequencies frequencies = ComputeRopeFrequencies(config.rope, config.head_dim);
//   const RopeTables tables = MakeRopeTables(frequencies, max_positions);
//   // pair i of a head at position p: (x[i], x[i + D/2]) rotated by the angle with cos tables.cos[p * D/2 + i]
//
// Source: transformers, modeling_rope_utils, ROPE_INIT_FUNCTIONS; YaRN is 2309.00071.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace foretoken::model {

struct LinearScaling {
  double factor = 1;
  friend bool operator==(const LinearScaling&, const LinearScaling&) = default;
};

struct Llama3Scaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_positions = 8192;
  friend bool operator==(const Llama3Scaling&, const Llama3Scaling&) = default;
};

struct YarnScaling {
  double factor = 1;
  int64_t original_max_positions = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;                    // rounds the bounds of the ramp between the two regimes to whole pairs
  std::optional<double> attention_factor;  // unset: computed from factor, mscale and mscale_all_dim
  std::optional<double> mscale;            // used only together with mscale_all_dim
  std::optional<double> mscale_all_dim;
  friend bool operator==(const YarnScaling&, const YarnScaling&) = default;
};

// Each pair has a divisor of its own. GGUF files store them.
struct DivisorScaling {
  std::vector<double> divisors;  // [D/2]
  friend bool operator==(const DivisorScaling&, const DivisorScaling&) = default;
};

struct RopeConfig {
  double theta = 10000;
  std::variant<std::monostate, LinearScaling, Llama3Scaling, YarnScaling, DivisorScaling> scaling;
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct RopeFrequencies {
  std::vector<double> inverse;  // [D/2] radians per position
  double attention_factor = 1;  // multiplies both cos and sin
};

// `head_dim` is even and positive, and ReadRopeConfig has accepted `rope`.
RopeFrequencies ComputeRopeFrequencies(const RopeConfig& rope, int64_t head_dim);

// Computed in double, rounded once.
struct RopeTables {
  std::vector<float> cos;  // [max positions, D/2]
  std::vector<float> sin;  // [max positions, D/2]
};

RopeTables MakeRopeTables(const RopeFrequencies& frequencies, int64_t max_positions);

}  // namespace foretoken::model
