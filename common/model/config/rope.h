// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: the angular speed of each pair of a head, with the scalings that do not depend on the
// current length.
//
//   const RopeFrequencies frequencies = ComputeRopeFrequencies(config.rope, rotary_dim, 4096);
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

// Each pair has a divisor of its own. GGUF files store them, and so does LongRoPE, which has others for long contexts.
// transformers takes those as soon as a text is longer than the original length. So a token's K would depend on what
// comes after it. Here the longest context that is served decides, as in vLLM.
struct DivisorScaling {
  std::vector<double> divisors;        // [R/2]
  std::vector<double> long_divisors;   // [R/2], or empty: the same for all contexts
  int64_t original_max_positions = 0;  // long contexts are longer
  double attention_factor = 1;
  friend bool operator==(const DivisorScaling&, const DivisorScaling&) = default;
};

struct RopeConfig {
  double theta = 10000;
  std::variant<std::monostate, LinearScaling, Llama3Scaling, YarnScaling, DivisorScaling> scaling;
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct RopeFrequencies {
  std::vector<double> inverse;  // [R/2] radians per position
  double attention_factor = 1;  // multiplies both cos and sin
};

// Whether contexts of at most `max_positions` take the divisors for long contexts.
bool TakesLongDivisors(const RopeConfig& rope, int64_t max_positions);

// `rotary_dim` R is even and positive, and ReadRopeSettings has accepted `rope`. Contexts have at most `max_positions`.
RopeFrequencies ComputeRopeFrequencies(const RopeConfig& rope, int64_t rotary_dim, int64_t max_positions);

// Computed in double, rounded once.
struct RopeTables {
  std::vector<float> cos;  // [max positions, R/2]
  std::vector<float> sin;  // [max positions, R/2]
};

RopeTables MakeRopeTables(const RopeFrequencies& frequencies, int64_t max_positions);

}  // namespace foretoken::model
