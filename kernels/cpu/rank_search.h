// SPDX-License-Identifier: Apache-2.0
// Where the weight of the first tokens, in the order of cuts, reaches a target, without putting the tokens in order.
//
// A round sorts a sample of the tokens, guesses from it a narrow range of values that holds the end, and splits all
// tokens at that range in one pass, which also tells whether the guess was right; the next round has only the tokens
// inside, or, after a wrong guess, those on the right side. So a guess decides how long a search takes and never what
// it finds. Few tokens are sorted, equal ones counted. After one round of a 128k vocabulary about a tenth is left,
// after two a hundredth. The sample is every n-th token: the same row gives the same rounds, and the same sums.
//
// Source: the sampling of Floyd and Rivest's SELECT (1975), for weights.
#pragma once

#include "kernels/cpu/token_split.h"
#include "kernels/cpu/top_tokens.h"

namespace foretoken::kernels::cpu {

// The last token that has less than `target` of weight before it, or the last above -inf. `total` is the weight of all,
// or a bound of it: a guess starts from it. At least one token is above -inf, and target > 0.
RankedToken FindByRank(const TokenView& tokens, double total, double target);

}  // namespace foretoken::kernels::cpu
