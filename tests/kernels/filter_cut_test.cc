// SPDX-License-Identifier: Apache-2.0
// The cases of tests/testing/cases/cut_cases.h on every instruction set. If this test fails, top_k, top_p or min_p keep
// wrong tokens on a CPU.
#include "kernels/cpu/draw/filter_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/testing/cases/cut_cases.h"
#include "tests/testing/cases/for_each_isa.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::ForEachIsa;
using testing::RandomValues;

FilterCut Cut(const std::vector<float>& row, const SamplingParams& sampling) {
  return FindCut(row, *std::max_element(row.begin(), row.end()), sampling);
}

TEST(FindCut, CutsRowsOfEveryKindAndLengthAsSortingDoes) {
  ForEachIsa([] {
    testing::ExpectCutsAsBySorting(Cut, std::vector<size_t>{1, 3, 17, 129, 1023, 1025, 4096},
                                   {{0, 1, 2, 16, 200}, {0.0f, 0.3f, 0.9f, 0.999f, 1.0f}});
  });
}

TEST(FindCut, CutsALargeVocabularyAsSortingDoes) {
  ForEachIsa([] {
    testing::ExpectCutsAsBySorting(Cut, std::vector<size_t>{128256}, {{0, 50, 500, 2000}, {0.5f, 0.95f, 0.999f, 1.0f}});
  });
}

TEST(FindCut, KeepsTheLowestIdsOfTheTokensThatTieAtTheCut) {
  ForEachIsa([] { testing::ExpectTiesAtTheCutToGoToTheLowestIds(Cut); });
}

// A sum must not depend on the thread's earlier searches: the same row gives the same bits again.
TEST(FindCut, IsAFunctionOfTheRowAlone) {
  ForEachIsa([] {
    RandomValues random(13);
    const std::vector<float> row = random.Normals(30000, 2), other = random.Normals(50000, 1);
    for (const SamplingParams& sampling :
         {SamplingParams{.top_p = 0.9f}, SamplingParams{.top_k = 9000, .top_p = 0.9f}}) {
      const FilterCut cut = Cut(row, sampling);
      Cut(other, sampling);
      const FilterCut again = Cut(row, sampling);
      EXPECT_EQ(cut.value, again.value);
      EXPECT_EQ(cut.id, again.id);
      std::thread([&] {
        const FilterCut elsewhere = Cut(row, sampling);
        EXPECT_EQ(cut.value, elsewhere.value);
        EXPECT_EQ(cut.id, elsewhere.id);
      }).join();
    }
  });
}

TEST(FindCut, MinPKeepsTheLeastValueThatIsLikelyEnough) {
  testing::ExpectMinPToKeepTheLeastValueThatIsLikelyEnough(Cut, 1000);
}

TEST(FindCut, MinPTakesNoLongerWhereItsBoundIsZero) { testing::ExpectMinPWhoseBoundIsZero(Cut); }

TEST(FindCut, MinPOfATinyShareKeepsAll) { testing::ExpectMinPOfATinyShareToKeepAll(Cut); }

TEST(FindCut, TopPNextToOneKeepsAllLikelyTokens) {
  ForEachIsa([] { testing::ExpectTopPNextToOneToKeepAllLikelyTokens(Cut, 300); });
}

}  // namespace
}  // namespace foretoken::kernels::cpu
