// SPDX-License-Identifier: Apache-2.0
// What every backend's attention has to do: agree with tests/reference, and give a row the same bits however it is
// batched (E1). Keys that a row does not see are NaN.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "kernels/ops.h"

namespace foretoken::testing {

// Does what the arguments say; all of their pointers are the host's.
using AttentionOp = std::function<void(const kernels::AttentionArgs&)>;

struct HeadShape {
  int32_t num_heads = 4;
  int32_t num_kv_heads = 2;
  int32_t head_dim = 16;
};

// What an op's products take. kBf16: q and the softmax's weights are rounded to bf16.
enum class AttentionOperands { kF32, kBf16 };

// A chunk of a sequence of `num_tokens`, a tree below it, and other sequences.
void ExpectAttentionMatchesTheReference(const HeadShape& shape, int32_t num_tokens, std::optional<int32_t> window,
                                        const AttentionOp& op, AttentionOperands operands = AttentionOperands::kF32);

// The same rows with q as they are and with q rounded to bf16.
void ExpectAttentionRoundsQueriesToBf16(const HeadShape& shape, int32_t num_tokens, const AttentionOp& op);

// Chunks of a prompt, and trees, against lone rows.
void ExpectAttentionIsRowInvariant(const HeadShape& shape, int32_t num_tokens, std::optional<int32_t> window,
                                   const AttentionOp& op);

// A row that has all but its first few of `num_tokens` as ancestors against a lone row of a chain.
void ExpectAttentionSeesALongPathAsAChain(const HeadShape& shape, int32_t num_tokens, std::optional<int32_t> window,
                                          const AttentionOp& op);

// Rows that see tokens whose V is not finite have no finite output, and the rows beside them, which do not see these
// tokens, have the bits of lone rows.
void ExpectAttentionHidesNonFiniteV(const HeadShape& shape, std::optional<int32_t> window, const AttentionOp& op);

}  // namespace foretoken::testing
