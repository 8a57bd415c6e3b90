// SPDX-License-Identifier: Apache-2.0
// Writes a target with the outputs of a small model and the cost of a large model. So both the acceptance of guesses
// and the cost of a step are real.
//
//   FT_RETURN_IF_ERROR(
//       WriteCostlyTarget({.source = "deploy/demo/target", .directory = dir, .num_bytes = 1'000'000'000}));
//
// The writer widens every layer's intermediate_size. Gate and up get random rows, and down gets zeros in the new
// columns, after the old columns. A sum in the order of its inputs then ends with additions of zero, so on the CPU
// backend the logits keep their bits. With another order of sums, rounding changes them.
//
// With experts, the target belongs to the family of GLM-4.5. The wide MLP becomes the part that all tokens share, and
// each layer gets routed experts of the same width. An expert's gate and up are random, and its down is zero, so
// experts add zero. The router is random, so a step's rows choose unlike experts, as in a model with a balanced router.
//
// Errors: INVALID_ARGUMENT for a checkpoint that is not one BF16 file with mlp.gate_proj, up_proj and down_proj in its
// layers; UNAVAILABLE if the disk does not take the file. The random rows are the same every time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace foretoken::bench {

struct CostlyTarget {
  std::string source;     // of a Hugging Face checkpoint
  std::string directory;  // exists; the wider checkpoint goes there
  int64_t num_bytes = 0;  // at least: the bytes that a step of one row reads of a model with a tied head
  int num_experts = 0;    // in each layer; a token takes 8 of them; 0: there are none
};

absl::Status WriteCostlyTarget(const CostlyTarget& target);

}  // namespace foretoken::bench
