// SPDX-License-Identifier: Apache-2.0
// Splits serve weights with so few outputs that blocks of 128 outputs leave most of a GPU idle. The table makes about
// 100 to 200 blocks; GPUs of compute capability 8.0 to 10.0 have 108 to 148 multiprocessors. More splits would fill a
// GPU better but cost more: a split's sums of 64 rows are written to memory and read again.
#include "kernels/cuda/matmul/numeric_class.h"

namespace foretoken::kernels::cuda {
namespace {

struct SplitCount {
  int64_t max_outputs;
  int32_t num_splits;
};

// Weights with more outputs than the last entry have one split.
constexpr SplitCount kSplitCounts[] = {{1024, 16}, {2048, 8}, {6144, 4}, {12288, 2}};

// Shorter splits do not pay, because a pipeline's first copies would be most of their time.
constexpr int64_t kMinSplitInputs = 256;

}  // namespace

NumericClass NumericClassOf(int64_t out_features, int64_t in_features) {
  int32_t num_splits = 1;
  for (const SplitCount& row : kSplitCounts) {
    if (out_features > row.max_outputs) continue;
    num_splits = row.num_splits;
    break;
  }
  while (num_splits > 1 && in_features < num_splits * kMinSplitInputs) num_splits /= 2;
  return {.num_slices = static_cast<int32_t>((in_features + kSliceInputs - 1) / kSliceInputs),
          .num_splits = num_splits};
}

}  // namespace foretoken::kernels::cuda
