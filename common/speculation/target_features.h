// SPDX-License-Identifier: Apache-2.0
// What a drafter reads of the target's hidden states, and how the verifier makes it.
//
// Let S_k be the residual stream that enters layer k: S_0 is the embedding, and S_L the last layer's output. The
// feature of a position is made from one or several S_k of that position's row, or it is the last hidden state after
// the final norm. The verifier multiplies by the drafter's own first matrix, so that a position takes H numbers on the
// wire and not the width of all layers.
//
// Source: EAGLE-3 (2503.01840). docs/writing-a-proposer.md describes the protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace foretoken::speculation {

// feature = weight x, where x is the layers side by side, normed or not.
struct FeatureProjection {
  enum class Norm {
    kNone,
    kWhole,     // one root mean square over all layers side by side
    kPerLayer,  // one for each layer
  };

  int64_t num_outputs = 0;       // H
  std::vector<uint16_t> weight;  // [H, A E] bf16
  Norm norm = Norm::kNone;
  std::vector<float> gains;  // [A E] of the norm; empty: no norm
  float eps = 0;

  friend bool operator==(const FeatureProjection&, const FeatureProjection&) = default;
};

struct TargetFeatures {
  std::vector<int32_t> layers;  // [A] the k of each S_k, in the order in which they stand side by side; empty: the last
                                // hidden state after the final norm, and no projection
  int64_t target_hidden_size = 0;               // E
  std::optional<FeatureProjection> projection;  // unset: the one layer as it is

  // The numbers of one position's feature.
  int64_t width() const { return projection.has_value() ? projection->num_outputs : target_hidden_size; }

  friend bool operator==(const TargetFeatures&, const TargetFeatures&) = default;
};

}  // namespace foretoken::speculation
