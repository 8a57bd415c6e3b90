// SPDX-License-Identifier: Apache-2.0
// Where filters must cut a row, at the edges, for any implementation; draw_cases.h holds them against the reference all
// together.
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

// Rows of every kind, cut at all limits together and alone, against putting them in order.
void ExpectCutsAsBySorting(const FindCutOp& find_cut, std::span<const size_t> row_sizes, const CutLimits& limits);
void ExpectTiesAtTheCutToGoToTheLowestIds(const FindCutOp& find_cut);
void ExpectMinPToKeepTheLeastValueThatIsLikelyEnough(const FindCutOp& find_cut, int num_rounds);
// Near zero there are a billion floats between a bound and its rounding: nothing may walk over them.
void ExpectMinPWhoseBoundIsZero(const FindCutOp& find_cut);
void ExpectMinPOfATinyShareToKeepAll(const FindCutOp& find_cut);
// The sum of a block with and without tokens too small to matter can differ by one rounding, which is as much as a
// top_p next to 1 leaves out.
void ExpectTopPNextToOneToKeepAllLikelyTokens(const FindCutOp& find_cut, int num_rounds);

}  // namespace foretoken::testing
