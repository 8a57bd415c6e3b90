// SPDX-License-Identifier: Apache-2.0
// Some writers stack the same matrix of all experts of a layer into one tensor. Here each expert gets its own, so that
// no other code knows stacks:
//
//   X.experts.gate_up_proj          [N, ...]            X.experts.E.gate_up_proj.weight         [...]
//   X.experts.gate_up_proj_bias     [N, ...]            X.experts.E.gate_up_proj.bias           [...]
//   X.experts.gate_up_proj_blocks   [N, rows, G, 16]    X.experts.E.gate_up_proj.weight_packed  [rows, 16 G]
//   X.experts.gate_up_proj_scales   [N, rows, G]        X.experts.E.gate_up_proj.weight_scale   [rows, G]
//
// and the same for gate_proj, up_proj and down_proj, for E in [0, N). The last two are MXFP4 as gpt-oss has it
// (common/quantization/mxfp4.h). Which rows of gate_up_proj are the gate's depends on the family
// (common/model/weight_names.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/weights/safetensors.h"

namespace foretoken::weights {

// Names and tensors of the experts, which are views of the stack's bytes. Empty: the tensor is no stack, or has more
// than 4,096 experts.
std::vector<std::pair<std::string, StoredTensor>> SplitExperts(absl::string_view name, const StoredTensor& tensor);

}  // namespace foretoken::weights
