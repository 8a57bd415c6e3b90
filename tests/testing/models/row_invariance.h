// SPDX-License-Identifier: Apache-2.0
// Checks of row invariance (E1). Each check computes rows in many ways and compares their logits, bit for bit, with the
// logits of plain decoding (KnownSequence). A failure names the way, the row and the difference.
//
// The checks return their result, so that a control can show that they detect a computation that is not invariant.
// The cache holds NaN in all slots that a check has not written. Models need kExactBlocks blocks.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tests/testing/models/known_sequence.h"
#include "tests/testing/models/loaded_model.h"

namespace foretoken::testing {

inline constexpr int32_t kExactBlocks = 512;

// Decodes 64 different sequences in batches of these sizes. Every step chooses other sequences in another order.
::testing::AssertionResult CheckBatchSizes(LoadedModel& model, std::span<const int32_t> batch_sizes);

// Computes the prompt in chunks of each of these sizes.
::testing::AssertionResult CheckChunkSizes(LoadedModel& model, const KnownSequence& known,
                                           std::span<const int32_t> chunk_sizes);

// Computes the prompt in random chunks with random block tables.
::testing::AssertionResult CheckBlockLayouts(LoadedModel& model, const KnownSequence& known, int num_layouts);

// Computes the last token with its whole tree, in slots of any order, beside another sequence's prompt.
::testing::AssertionResult CheckTree(LoadedModel& model, const KnownSequence& known);

// Runs CheckTree for random trees with these numbers of nodes, below these numbers of tokens.
::testing::AssertionResult CheckRandomTrees(LoadedModel& model, std::span<const int32_t> token_counts,
                                            int32_t num_nodes);

// Computes random batches of prompt chunks, decode rows and parts of trees of these sequences. The model may differ
// from the model that decoded them, for example in its number of threads, if it must compute the same.
::testing::AssertionResult CheckMixedBatches(LoadedModel& model, std::span<const KnownSequence> known, int num_batches);

// Decodes speculatively. The trees hold the sequence's own next tokens among wrong tokens. Accepted rows move into
// place, and later rows attend to them. The slots of a tree are apart from the targets of these moves, or overlap them.
enum class TreeSlots { kApart, kOverlapping };
::testing::AssertionResult CheckMovedRows(LoadedModel& model, const KnownSequence& known, TreeSlots tree_slots);

// Sequences with a common beginning find cached blocks, lose their blocks at random times, and are computed again.
::testing::AssertionResult CheckReusedBlocks(LoadedModel& model, std::span<const KnownSequence> known, int num_visits);

}  // namespace foretoken::testing
