// SPDX-License-Identifier: Apache-2.0
// Where the weight of the first tokens, in the order of cuts, reaches a target, without putting the tokens in order.
//
// A round guesses a narrow range of values that holds the end (rank_guess.h) and splits all tokens at it in one pass,
// which also tells whether the guess was right; the next round has only the tokens inside, or, after a wrong guess,
// those on the right side. So a guess decides how long a search takes and never what it finds. Few tokens are sorted,
// equal ones counted. Of a 128k vocabulary about a tenth is left after one round, a hundredth after two. Every sum has
// one order, which depends on the row alone.
//
// Rows have no NaN or +inf, and at least one token above -inf.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/cpu/draw/token_split.h"
#include "kernels/cpu/draw/top_tokens.h"

namespace foretoken::kernels::cpu {

// The `count`-th token of the row, or the last above -inf; count > 0.
RankedToken FindNth(std::span<const float> row, size_t count);

// The last token that has less than `share` of the weight before it. With `count` all this is about the first so many
// tokens.
RankedToken FindShare(std::span<const float> row, std::optional<size_t> count, const Softmax& softmax, double share);

}  // namespace foretoken::kernels::cpu
