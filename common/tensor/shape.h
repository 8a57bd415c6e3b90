// SPDX-License-Identifier: Apache-2.0
// The shape legend. The comment of every tensor uses these letters, for example // [T, H/R, D] bf16.
//
//   T  rows of a step            E  embed (hidden) size       D  head size
//   N  tree nodes                H  attention heads           F  ffn (intermediate) size
//   S  segments of a step        K  key/value heads           V  vocabulary
//   L  layers                    R  tensor-parallel ranks
//
// In kernels/, a file about a single matrix product calls a weight's outputs N and its inputs K.
#pragma once

#include "kernels/tensor_view.h"
