// SPDX-License-Identifier: Apache-2.0
// A backend that breaks row invariance (E1). Every variant is one that fast engines really use. Its arithmetic is
// correct, but its order depends on other rows. A suite that does not detect these variants proves nothing.
#pragma once

#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace foretoken::testing {

enum class Variant {
  // Plain attention in the invariant order. The other attention variants differ from it in one way each.
  kInvariant,
  // With more than one row, two partial sums over halves of the inputs, as if batches had a second kernel.
  kMatMulSplitsInputs,
  // Separate tiles for context and tree, like a tree kernel beside a decode kernel.
  kAttentionTreeApart,
  // Tiles are cut at the first row of the pass, like a first kernel for cached keys and a second for new keys.
  kAttentionNewRowsApart,
  // The context is split into more parts if the batch is too small to keep all threads busy.
  kAttentionSplitsSmallBatches,
  // Blocks are visited in their order in memory.
  kAttentionFollowsBlocks,
  // Accepted rows move one after another, so that a move can overwrite a row that is not moved yet.
  kMoveKvOneByOne,
  // With more than one row the parts of tensor-parallel ranks are added from the last to the first, like a library that
  // chooses its reduction by the size of the message.
  kSumRanksBackwards,
};

// Returns a function for LoadOptions::wrap_backend that puts the variant in front of a backend.
std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> WithVariant(Variant variant);

}  // namespace foretoken::testing
