// SPDX-License-Identifier: Apache-2.0
// The shape legend. Every tensor's comment is written in these letters, for example // [T, H/R, D] bf16.
//
//   T  rows of a step            E  embed (hidden) size       D  head size
//   N  tree nodes                H  attention heads           F  ffn (intermediate) size
//   S  segments of a step        K  key/value heads           V  vocabulary
//   L  layers                    R  tensor-parallel ranks
//
// In kernels/, where a matrix product is looked at alone, N and K are a weight's outputs and inputs.
#pragma once

#include "kernels/tensor_view.h"
