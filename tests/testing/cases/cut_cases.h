// SPDX-License-Identifier: Apache-2.0
// The required cuts of a row by the filters, in edge cases, for any implementation. draw_cases.h compares all filters
// together with the reference.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "kernels/filter_cut.h"
#include "kernels/ops.h"

namespace foretoken::testing {

using FindCutOp = std::function<kernels::FilterCut(const std::vector<float>& row, const kernels::SamplingParams&)>;

struct CutLimits {
  std::vector<size_t> top_ks;
  std::vector<float> top_ps;
};

// Compares rows of every kind, cut by all limits together and alone, with sorted rows.
void ExpectCutsAsBySorting(const FindCutOp& find_cut, std::span<const size_t> row_sizes, const CutLimits& limits);
void ExpectTiesAtTheCutToGoToTheLowestIds(const FindCutOp& find_cut);
void ExpectMinPToKeepTheLeastValueThatIsLikelyEnough(const FindCutOp& find_cut, int num_rounds);
// Near zero a billion floats lie between a bound and its rounding. A search must not step through them.
void ExpectMinPWhoseBoundIsZero(const FindCutOp& find_cut);
void ExpectMinPOfATinyShareToKeepAll(const FindCutOp& find_cut);
// Tokens of tiny weight can change the sum of a block by one rounding. A top_p next to 1 leaves out only that much.
void ExpectTopPNextToOneToKeepAllLikelyTokens(const FindCutOp& find_cut, int num_rounds);

}  // namespace foretoken::testing
