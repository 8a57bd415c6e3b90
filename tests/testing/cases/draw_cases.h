// SPDX-License-Identifier: Apache-2.0
// The required behaviour of a draw from a row, for any implementation, against tests/reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/ops.h"
#include "tests/reference/sampling.h"

namespace foretoken::testing {

struct DrawnToken {
  kernels::DrawStatus status = kernels::DrawStatus::kOk;
  int32_t token_id = 0;  // 0 unless kOk
};
using DrawOp = std::function<DrawnToken(const reference::DrawInputs&)>;

// Random rows under random combinations of all filters.
void ExpectTheReferencesDraws(const DrawOp& draw, int num_rounds);
// The same under rejection sampling without guesses: the first coin of the index selects the token.
void ExpectTheReferencesDrawsByCoin(const DrawOp& draw, int num_rounds);
void ExpectDrawsByCoinFromAHugeVocabulary(const DrawOp& draw, uint32_t num_draws);
void ExpectTheReferencesDrawsOnALargeVocabulary(const DrawOp& draw, uint32_t num_draws);
void ExpectTiesToGoToTheLowestId(const DrawOp& draw);
// Ties at the cut: a draw can give the kept tokens and never the others.
void ExpectDrawsFromARowOfOneValue(const DrawOp& draw, uint32_t num_draws);
void ExpectSumsThatOverflowToBeFinite(const DrawOp& draw);
void ExpectTheMaximumInEveryPlace(const DrawOp& draw, size_t num_places);
void ExpectNonFiniteLogitsToShow(const DrawOp& draw);
void ExpectAnEmptySupportToShow(const DrawOp& draw);
void ExpectIdsOutsideTheVocabularyToBeIgnored(const DrawOp& draw);

}  // namespace foretoken::testing
