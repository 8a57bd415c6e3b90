// SPDX-License-Identifier: Apache-2.0
// Ways to draft, and to choose among what was drafted, that make the ratio test inexact. The exactness suite must catch
// every one of them.
#pragma once

#include <cstdint>
#include <span>

#include "common/speculation/token_tree.h"
#include "tests/testing/distributions/enumerated_coins.h"
#include "tests/testing/distributions/small_distribution.h"

namespace foretoken::reference {

// Children that were not drawn at all, the likeliest say, are passed off as samples of the distribution.
speculation::TokenTree ClaimSampled(speculation::TokenTree tree, const testing::SmallDistribution& distribution);

// A sampled child is dropped because of its own value: it is not likely enough.
speculation::TokenTree DropUnlikely(const speculation::TokenTree& tree, double min_draft_prob);

// Children were sampled from all of the distribution, and its `num_kept` likeliest tokens are sent.
speculation::TokenTree SendTruncated(speculation::TokenTree tree, int32_t num_kept);

// A chain is given up where its last token was unlikely: its size follows from a token that was drawn later.
speculation::TokenTree GiveUpIfLastUnlikely(const speculation::TokenTree& tree, double min_draft_prob);

// The token argmax_v (log distribution(v) + g(v)), given that with the same noise g the draft's was `drafted`, at which
// distribution is 0. Three tokens.
int32_t DrawWithTheDraftsNoise(std::span<const double> distribution, std::span<const double> draft, int32_t drafted,
                               testing::Branches& branches);

}  // namespace foretoken::reference
