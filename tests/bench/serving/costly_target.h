// SPDX-License-Identifier: Apache-2.0
// A target as costly as a large model that says what a small one says, so that both what speculation wins and what a
// step costs are real.
//
//   FT_RETURN_IF_ERROR(WriteCostlyTarget({.source = "deploy/demo/target", .directory = dir, .num_bytes =
//   1'000'000'000}));
//
// Every layer's intermediate_size is widened: gate and up get random rows, and down gets zeros in the new columns,
// behind the old ones. A product whose sum is one chain in the order of its inputs then ends with additions of zero: on
// the CPU backend the logits keep their bits. Where sums are made in another order, rounding moves them.
//
// Errors: INVALID_ARGUMENT for a checkpoint that is not one BF16 file with mlp.gate_proj, up_proj and down_proj in its
// layers; UNAVAILABLE when the disk does not take it. The random rows are the same every time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace foretoken::bench {

struct CostlyTarget {
  std::string source;     // of a Hugging Face checkpoint
  std::string directory;  // exists, and gets the wider one
  int64_t num_bytes = 0;  // of all weights, at least; what a step of a model with a tied head reads
};

absl::Status WriteCostlyTarget(const CostlyTarget& target);

}  // namespace foretoken::bench
