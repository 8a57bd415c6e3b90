// SPDX-License-Identifier: Apache-2.0
// The required behaviour of every backend's attention: it agrees with tests/reference, and a row's bits do not depend
// on its batch (E1). Keys that a row does not see are NaN.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "kernels/ops.h"

namespace foretoken::testing {

// Runs attention. All pointers of the arguments are host pointers.
using AttentionOp = std::function<void(const kernels::AttentionArgs&)>;

struct HeadShape {
  int32_t num_heads = 4;
  int32_t num_kv_heads = 2;
  int32_t head_dim = 16;
  kernels::KvCacheDtype kv_dtype = kernels::KvCacheDtype::kBf16;
  std::optional<float> cap;  // of scores
  bool has_sinks = false;
  bool has_window_origins = false;  // windows are counted from the last multiple of 8 before the row, minus 1
  // With kv_dtype kBf16: K and V are first rounded as a cache of this type of 8 bits rounds them, and then to bf16.
  std::optional<kernels::KvCacheDtype> rounded_from = std::nullopt;
};

// The type of the products' operands. kBf16: q and the weights of the softmax are rounded to bf16.
enum class AttentionOperands { kF32, kBf16 };

// Compares a chunk of a sequence of `num_tokens`, a tree below it, and other sequences with the reference.
void ExpectAttentionMatchesTheReference(const HeadShape& shape, int32_t num_tokens, std::optional<int32_t> window,
                                        const AttentionOp& op, AttentionOperands operands = AttentionOperands::kF32);

// Compares the same rows with unrounded q and with q rounded to bf16.
void ExpectAttentionRoundsQueriesToBf16(const HeadShape& shape, int32_t num_tokens, const AttentionOp& op);

// Compares a cache in 8 bits with one of bf16 that holds its values, bit for bit.
void ExpectAttentionReadsCodesAsBf16(HeadShape shape, int32_t num_tokens, std::optional<int32_t> window,
                                     const AttentionOp& op);

// Compares chunks of a prompt, and trees, with single rows.
void ExpectAttentionIsRowInvariant(const HeadShape& shape, int32_t num_tokens, std::optional<int32_t> window,
                                   const AttentionOp& op);

// Compares a row whose ancestors are all but the first few of `num_tokens` with a single row of a chain.
void ExpectAttentionSeesALongPathAsAChain(const HeadShape& shape, int32_t num_tokens, std::optional<int32_t> window,
                                          const AttentionOp& op);

// Some tokens have V that is not finite. Rows that see such a token must have no finite output. Rows that do not see it
// must have the bits of single rows.
void ExpectAttentionHidesNonFiniteV(const HeadShape& shape, std::optional<int32_t> window, const AttentionOp& op);

}  // namespace foretoken::testing
