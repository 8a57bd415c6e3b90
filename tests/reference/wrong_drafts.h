// SPDX-License-Identifier: Apache-2.0
// Wrong ways to draft, or to choose among drafted tokens. Each makes the ratio test inexact, and the exactness suite
// must detect each.
#pragma once

#include <cstdint>
#include <span>

#include "common/speculation/token_tree.h"
#include "tests/testing/distributions/enumerated_coins.h"
#include "tests/testing/distributions/small_distribution.h"

namespace foretoken::reference {

// Marks children that were not sampled, for example the most likely tokens, as samples of the distribution.
speculation::TokenTree ClaimSampled(speculation::TokenTree tree, const testing::SmallDistribution& distribution);

// Drops a sampled child because of its own value: it is not likely enough.
speculation::TokenTree DropUnlikely(const speculation::TokenTree& tree, double min_draft_prob);

// Sends only the `num_kept` most likely tokens of a distribution, although the children were sampled from all of it.
speculation::TokenTree SendTruncated(speculation::TokenTree tree, int32_t num_kept);

// Drops a chain if its last token was unlikely. So the size of the tree depends on a token that was drawn later.
speculation::TokenTree GiveUpIfLastUnlikely(const speculation::TokenTree& tree, double min_draft_prob);

// Draws argmax_v (log distribution(v) + g(v)), given that the draft's argmax with the same noise g was `drafted`. The
// distribution of `drafted` is 0. For three tokens.
int32_t DrawWithTheDraftsNoise(std::span<const double> distribution, std::span<const double> draft, int32_t drafted,
                               testing::Branches& branches);

}  // namespace foretoken::reference
