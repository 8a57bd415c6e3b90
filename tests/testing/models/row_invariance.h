// SPDX-License-Identifier: Apache-2.0
// Row invariance (E1) as functions that tests call: each computes rows in many ways and compares their logits, bit for
// bit, with those of plain decoding (KnownSequence). What fails says in which way, which row, and by how much.
//
// They return their result, so that a control can show that a computation that is not invariant is found out.
// The cache holds NaN wherever a check has stored nothing. Models need kExactBlocks blocks.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tests/testing/models/known_sequence.h"
#include "tests/testing/models/loaded_model.h"

namespace foretoken::testing {

inline constexpr int32_t kExactBlocks = 512;

// A decode step of so many of 64 different sequences: which, and in which order, differs from step to step.
::testing::AssertionResult CheckBatchSizes(LoadedModel& model, std::span<const int32_t> batch_sizes);

// The prompt in chunks of each of these sizes.
::testing::AssertionResult CheckChunkSizes(LoadedModel& model, const KnownSequence& known,
                                           std::span<const int32_t> chunk_sizes);

// The prompt in random chunks through random block tables.
::testing::AssertionResult CheckBlockLayouts(LoadedModel& model, const KnownSequence& known, int num_layouts);

// The last token with its whole tree, in slots of any order, beside another sequence's prompt.
::testing::AssertionResult CheckTree(LoadedModel& model, const KnownSequence& known);

// CheckTree for random trees of so many nodes below so many tokens.
::testing::AssertionResult CheckRandomTrees(LoadedModel& model, std::span<const int32_t> token_counts,
                                            int32_t num_nodes);

// Random batches of prompt chunks, decode rows and parts of trees of these sequences. The model may be another one than
// that which decoded them, if it is to compute the same: on more threads, say.
::testing::AssertionResult CheckMixedBatches(LoadedModel& model, std::span<const KnownSequence> known, int num_batches);

// Speculative decoding whose trees hold the sequence's own next tokens among wrong ones: accepted rows are moved into
// place, and what follows attends to them. Slots of the trees lie apart, or are the very ones that rows move to.
enum class TreeSlots { kApart, kOverlapping };
::testing::AssertionResult CheckMovedRows(LoadedModel& model, const KnownSequence& known, TreeSlots tree_slots);

// Sequences with a common beginning begin, find cached blocks, lose theirs at any moment, and are computed again.
::testing::AssertionResult CheckReusedBlocks(LoadedModel& model, std::span<const KnownSequence> known, int num_visits);

}  // namespace foretoken::testing
