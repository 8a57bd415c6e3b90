// SPDX-License-Identifier: Apache-2.0
// Where filters cut a row, at the edges; draw_row_test.cc holds them against the reference all together.
#include "kernels/cpu/filter_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/top_tokens.h"
#include "tests/testing/for_each_isa.h"
#include "tests/testing/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::ForEachIsa;
using testing::RandomValues;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct RowKind {
  std::string name;
  std::function<float(RandomValues&, size_t id)> logit;
};

std::vector<RowKind> RowKinds() {
  return {
      {"flat", [](RandomValues& random, size_t) { return random.Normal() * 0.5f; }},
      {"normal", [](RandomValues& random, size_t) { return random.Normal() * 3; }},
      {"heavy tail", [](RandomValues& random, size_t) { return random.Normal() * 8; }},
      {"steps", [](RandomValues& random, size_t) { return std::round(random.Normal() * 8) / 4; }},
      {"one value", [](RandomValues&, size_t) { return -2.5f; }},
      {"nine in ten equal", [](RandomValues& random, size_t) { return random.Coin(0.9) ? 0 : random.Normal(); }},
      {"mostly impossible",
       [](RandomValues& random, size_t) { return random.Coin(0.95) ? -kInfinity : random.Normal(); }},
      {"masked", [](RandomValues& random, size_t) { return random.Coin(0.5) ? -1e30f : random.Normal(); }},
      {"one far above", [](RandomValues& random, size_t id) { return id == 0 ? 80 : random.Normal() * 0.01f; }},
      {"huge", [](RandomValues& random, size_t) { return random.Normal() * 1e37f; }},
      {"falling with the id", [](RandomValues&, size_t id) { return -0.001f * static_cast<float>(id); }},
      // What a sample of every n-th token takes for the row is not the row.
      {"period 238", [](RandomValues& random, size_t id) { return random.Normal() + (id % 238 == 0 ? 9.0f : 0.0f); }},
      {"period 251", [](RandomValues& random, size_t id) { return random.Normal() - (id % 251 == 0 ? 9.0f : 0.0f); }},
  };
}

std::vector<float> MakeRow(const RowKind& kind, size_t num_tokens, RandomValues& random) {
  std::vector<float> row(num_tokens);
  for (size_t id = 0; id < num_tokens; ++id) row[id] = kind.logit(random, id);
  row[num_tokens / 2] = std::max(row[num_tokens / 2], 0.0f);  // not all are impossible
  return row;
}

// All tokens above -inf, in the order of cuts.
std::vector<RankedToken> SortAll(const std::vector<float>& row) {
  std::vector<RankedToken> order;
  for (size_t id = 0; id < row.size(); ++id) {
    if (row[id] > -kInfinity) order.push_back({row[id], static_cast<int32_t>(id)});
  }
  std::sort(order.begin(), order.end());
  return order;
}

size_t CountKept(const FilterCut& cut, const std::vector<RankedToken>& order) {
  const auto end = std::find_if(order.begin(), order.end(),
                                [&](const RankedToken& token) { return !cut.Keeps(token.value, token.id); });
  return static_cast<size_t>(end - order.begin());
}

// Whether `num_kept` is where the nucleus of the first `count` ends. A weight is off by a few units in the last place,
// and a sum by the roundings of up to 1024 additions, a block in one lane: 1024 * 2^-24 of it at worst.
void ExpectEndOfNucleus(const std::vector<RankedToken>& order, size_t count, const SamplingParams& sampling,
                        size_t num_kept) {
  const auto weight = [&](size_t i) {
    return std::exp((double{order[i].value} - order[0].value) / sampling.temperature);
  };
  double total = 0, before = 0;
  for (size_t i = 0; i < count; ++i) total += weight(i);
  for (size_t i = 0; i + 1 < num_kept; ++i) before += weight(i);
  const double tolerance = 0x1p-14 * total;
  ASSERT_GE(num_kept, 1);
  ASSERT_LE(num_kept, count);
  if (num_kept > 1) {
    EXPECT_LT(before, sampling.top_p * total + tolerance);
  }
  if (num_kept < count) {
    EXPECT_GE(before + weight(num_kept - 1), sampling.top_p * total - tolerance);
  }
}

// Every top_k and top_p of a row, against sorting it.
void ExpectCutsAsBySorting(const std::vector<float>& row, std::span<const size_t> top_ks,
                           std::span<const float> top_ps) {
  const std::vector<RankedToken> order = SortAll(row);
  for (const size_t top_k : top_ks) {
    const size_t count = top_k == 0 ? order.size() : std::min(top_k, order.size());
    for (const float top_p : top_ps) {
      for (const float temperature : {0.7f, 8.0f}) {
        SCOPED_TRACE(::testing::Message() << "top_k " << top_k << " top_p " << top_p << " temperature " << temperature);
        const SamplingParams sampling{.temperature = temperature, .top_k = static_cast<int32_t>(top_k), .top_p = top_p};
        const size_t num_kept = CountKept(FindCut(row, order[0].value, sampling), order);
        if (top_p < 1) {
          ExpectEndOfNucleus(order, count, sampling, num_kept);
        } else {
          ASSERT_EQ(num_kept, count);
        }
      }
    }
  }
}

TEST(FindCut, CutsRowsOfEveryKindAndLengthAsSortingDoes) {
  ForEachIsa([] {
    RandomValues random(11);
    for (const RowKind& kind : RowKinds()) {
      for (const size_t num_tokens : {1, 3, 17, 129, 1023, 1025, 4096}) {
        SCOPED_TRACE(::testing::Message() << kind.name << " of " << num_tokens);
        const std::vector<size_t> top_ks = {0, 1, 2, 16, 200, num_tokens / 3 + 1, num_tokens - 1, num_tokens + 1};
        ExpectCutsAsBySorting(MakeRow(kind, num_tokens, random), top_ks,
                              std::vector<float>{0.0f, 0.3f, 0.9f, 0.999f, 1.0f});
        if (::testing::Test::HasFailure()) return;
      }
    }
  });
}

TEST(FindCut, CutsALargeVocabularyAsSortingDoes) {
  ForEachIsa([] {
    RandomValues random(12);
    const std::vector<size_t> top_ks = {0, 50, 500, 2000, 40000, 128255};
    for (const RowKind& kind : RowKinds()) {
      SCOPED_TRACE(kind.name);
      ExpectCutsAsBySorting(MakeRow(kind, 128256, random), top_ks, std::vector<float>{0.5f, 0.95f, 0.999f, 1.0f});
      if (::testing::Test::HasFailure()) return;
    }
  });
}

TEST(FindCut, KeepsTheLowestIdsOfTheTokensThatTieAtTheCut) {
  ForEachIsa([] {
    std::vector<float> row(5000, 1);
    for (size_t id = 0; id < row.size(); id += 5) row[id] = 2;
    row[77] = 3;
    // The cut of top_k 1501 is behind 1 + 1000 larger ones: the 500th of the 1s, ids 1, 2, 3, 4, 6, ... without 77.
    const FilterCut cut = FindCut(row, 3, {.top_k = 1501});
    EXPECT_EQ(cut.value, 1);
    EXPECT_EQ(cut.id, 626);
    EXPECT_EQ(FindCut(row, 3, {.top_k = 1001}).value, 2);
    EXPECT_EQ(FindCut(row, 3, {.top_k = 1001}).id, 4995);
    // 5000 equal tokens: half of the weight is before the 2501st.
    EXPECT_EQ(FindCut(std::vector<float>(5000, 1), 1, {.top_p = 0.5f}).id, 2499);
  });
}

// A sum must not depend on who sums: the same row gives the same bits again, whatever was searched in between.
TEST(FindCut, IsAFunctionOfTheRowAlone) {
  ForEachIsa([] {
    RandomValues random(13);
    const std::vector<float> row = random.Normals(30000, 2), other = random.Normals(50000, 1);
    const float max = *std::max_element(row.begin(), row.end());
    for (const SamplingParams& sampling :
         {SamplingParams{.top_p = 0.9f}, SamplingParams{.top_k = 9000, .top_p = 0.9f}}) {
      const FilterCut cut = FindCut(row, max, sampling);
      FindCut(other, *std::max_element(other.begin(), other.end()), sampling);
      const FilterCut again = FindCut(row, max, sampling);
      EXPECT_EQ(cut.value, again.value);
      EXPECT_EQ(cut.id, again.id);
      std::thread([&] {
        const FilterCut elsewhere = FindCut(row, max, sampling);
        EXPECT_EQ(cut.value, elsewhere.value);
        EXPECT_EQ(cut.id, elsewhere.id);
      }).join();
    }
  });
}

TEST(FindCut, MinPKeepsTheLeastValueThatIsLikelyEnough) {
  RandomValues random(10);
  for (int i = 0; i < 1000; ++i) {
    const float max = random.Normal() * 20;
    const SamplingParams sampling{.temperature = static_cast<float>(0.01 + random.Uniform()),
                                  .min_p = static_cast<float>(random.Uniform())};
    const std::vector<float> row = {max};
    const float least = FindCut(row, max, sampling).value;
    const double bound = max + std::log(double{sampling.min_p}) * sampling.temperature;
    EXPECT_GE(least, bound);
    EXPECT_LT(std::nextafter(least, -kInfinity), bound);
  }
}

// Near zero there are a billion floats between a bound and its rounding: nothing may walk over them.
TEST(FindCut, MinPTakesNoLongerWhereItsBoundIsZero) {
  const std::vector<float> row = {std::log(2.0f), 0, -1};
  const FilterCut cut = FindCut(row, row[0], {.min_p = 0.5f});
  EXPECT_NEAR(cut.value, 0, 0x1p-24);
  EXPECT_TRUE(cut.Keeps(row[0], 0));
  EXPECT_FALSE(cut.Keeps(row[2], 2));
}

TEST(FindCut, MinPOfATinyShareKeepsAll) {
  const std::vector<float> row = {0, -3e38f};
  const FilterCut cut = FindCut(row, 0, {.temperature = 1e38f, .min_p = 1e-30f});
  EXPECT_TRUE(cut.Keeps(row[1], 1));
}

// The sum of a block with and without tokens too small to matter can differ by one rounding, which is as much as a
// top_p next to 1 leaves out.
TEST(FindCut, TopPNextToOneKeepsAllLikelyTokens) {
  ForEachIsa([] {
    RandomValues random(1);
    for (const size_t stride : {4, 8, 16}) {
      for (int round = 0; round < 300; ++round) {
        std::vector<float> row(1024);
        double total = 0;
        for (size_t id = 0; id < row.size(); ++id) {
          row[id] = static_cast<float>(random.Uniform());
          if (id % stride != 0) total += std::exp(row[id]);
        }
        const auto tail = static_cast<float>(std::log(0x1p-24 * total / 1024) - 0.01);
        for (size_t id = 0; id < row.size(); id += stride) row[id] = tail;
        const float max = *std::max_element(row.begin(), row.end());
        const FilterCut cut = FindCut(row, max, {.top_p = 1 - 0x1p-24f});
        for (size_t id = 0; id < row.size(); ++id) {
          if (id % stride == 0) continue;
          ASSERT_TRUE(cut.Keeps(row[id], static_cast<int32_t>(id))) << round << " " << id;
        }
      }
    }
  });
}

}  // namespace
}  // namespace foretoken::kernels::cpu
