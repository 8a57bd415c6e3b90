// SPDX-License-Identifier: Apache-2.0
// A backend whose results depend on what E1 says they must not depend on: each way is one that fast engines really go.
// The arithmetic is right every time, only its order is not the row's own. A suite that does not find these out proves
// nothing.
#pragma once

#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace foretoken::testing {

enum class Variant {
  // Attention written plainly, in the invariant order: what the others below differ from in nothing but their way.
  kInvariant,
  // With more than one row, two partial sums over halves of the inputs: one kernel for decoding, another for batches.
  kMatMulSplitsInputs,
  // Tiles of context and tiles of tree are apart: a tree kernel beside a decode kernel.
  kAttentionTreeApart,
  // Tiles are cut where the pass's own rows begin: cached keys first, new ones in a second kernel.
  kAttentionNewRowsApart,
  // Context is split into more parts when the batch is too small to keep all threads busy.
  kAttentionSplitsSmallBatches,
  // Blocks are visited in the order in which they lie in memory.
  kAttentionFollowsBlocks,
  // Accepted rows move one after another, so that a target can overwrite what is still to be moved.
  kMoveKvOneByOne,
  // With more than one row the parts of tensor-parallel ranks are added from the last to the first: a library's
  // reduction that picks its way by the size of the message.
  kSumRanksBackwards,
};

// Puts it in front of a backend: as LoadOptions::wrap_backend.
std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> WithVariant(Variant variant);

}  // namespace foretoken::testing
