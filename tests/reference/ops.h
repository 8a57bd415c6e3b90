// SPDX-License-Identifier: Apache-2.0
// The reference ops: scalar, in double precision, obvious. They take the arguments of the real ops and return the
// expected output.
#pragma once

#include <optional>
#include <vector>

#include "kernels/ops.h"

namespace foretoken::reference {

double Activated(kernels::Activation activation, double x);
// One element of the gated linear unit.
double Gated(const kernels::Gating& gating, double gate, double up);
double Capped(double x, const std::optional<double>& cap);

// What the norm stores or adds.
std::vector<double> RmsNorm(const kernels::RmsNormArgs& args);  // [T, E]
std::vector<double> Glu(const kernels::GluArgs& args);          // [T, F]

struct RotatedRows {
  std::vector<double> q;  // [T, H, D]
  std::vector<double> k;  // [T, K, D]
  std::vector<double> v;  // [T, K, D]
};
RotatedRows RopeStoreKv(const kernels::RopeStoreKvArgs& args);

// The slots that a row sees within its window, by logical position. The first slot has position `first_position`.
struct VisibleSlots {
  int32_t first_position = 0;
  std::vector<int32_t> slots;
};
VisibleSlots SlotsOfRow(const kernels::AttentionArgs& args, int32_t segment, int32_t row);

std::vector<double> Attention(const kernels::AttentionArgs& args);  // [T, H, D]

// Returns the cached element of K (part 0) or V (part 1), in bf16.
uint16_t& CacheElement(const kernels::KvCacheView& kv, int32_t layer, int32_t part, int32_t slot, int32_t head,
                       int32_t d);
// The same element's value, with its scale in a cache of 8 bits.
double CacheValue(const kernels::KvCacheView& kv, int32_t layer, int32_t part, int32_t slot, int32_t head, int32_t d);

}  // namespace foretoken::reference
