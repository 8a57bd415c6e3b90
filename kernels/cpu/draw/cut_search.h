// SPDX-License-Identifier: Apache-2.0
// Finds the place where the weight of the first tokens, in the order of cuts, reaches a target, without sorting the
// tokens.
//
// A round guesses a narrow range of values that holds the end (cut_guess.h). One pass splits all tokens at the range
// and tells whether the guess was right. The next round has only the tokens inside, or, after a wrong guess, the tokens
// on the right side. So a guess decides the time of a search, never its result. Few tokens are sorted; equal tokens are
// counted. Of a 128k vocabulary about a tenth remains after one round, and a hundredth after two. Every sum has one
// order, which depends on the row alone.
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
OrderedToken FindNth(std::span<const float> row, size_t count);

// The last token that has less than `share` of the weight before it. With `count`, the row is its first `count` tokens.
OrderedToken FindShare(std::span<const float> row, std::optional<size_t> count, const Softmax& softmax, double share);

}  // namespace foretoken::kernels::cpu
