// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/cut_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {

using kernels::FilterCut;
using kernels::SamplingParams;

namespace {

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
      // A sample of every n-th token does not represent the row.
      {"period 238", [](RandomValues& random, size_t id) { return random.Normal() + (id % 238 == 0 ? 9.0f : 0.0f); }},
      {"period 251", [](RandomValues& random, size_t id) { return random.Normal() - (id % 251 == 0 ? 9.0f : 0.0f); }},
  };
}

std::vector<float> MakeRow(const RowKind& kind, size_t num_tokens, RandomValues& random) {
  std::vector<float> row(num_tokens);
  for (size_t id = 0; id < num_tokens; ++id) row[id] = kind.logit(random, id);
  row[num_tokens / 2] = std::max(row[num_tokens / 2], 0.0f);  // at least one token is possible
  return row;
}

struct OrderedToken {
  float value = 0;
  int32_t id = 0;
};

// All tokens above -inf, in the order of cuts.
std::vector<OrderedToken> SortAll(const std::vector<float>& row) {
  std::vector<OrderedToken> order;
  for (size_t id = 0; id < row.size(); ++id) {
    if (row[id] > -kInfinity) order.push_back({row[id], static_cast<int32_t>(id)});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const OrderedToken& a, const OrderedToken& b) { return a.value > b.value; });
  return order;
}

size_t CountKept(const FilterCut& cut, const std::vector<OrderedToken>& order) {
  const auto end = std::find_if(order.begin(), order.end(),
                                [&](const OrderedToken& token) { return !cut.Keeps(token.value, token.id); });
  return static_cast<size_t>(end - order.begin());
}

// Checks that the nucleus of the first `count` tokens ends at `num_kept`. A weight is off by a few units in the last
// place. A sum is off by the roundings of up to 1024 additions, a block in one lane: at most 1024 * 2^-24 of it.
void ExpectEndOfNucleus(const std::vector<OrderedToken>& order, size_t count, const SamplingParams& sampling,
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

// Compares all limits of one row with sorting the row.
void ExpectRowToBeCutAsBySorting(const FindCutOp& find_cut, const std::vector<float>& row, const CutLimits& limits) {
  const std::vector<OrderedToken> order = SortAll(row);
  for (const size_t top_k : limits.top_ks) {
    const size_t count = top_k == 0 ? order.size() : std::min(top_k, order.size());
    for (const float top_p : limits.top_ps) {
      for (const float temperature : {0.7f, 8.0f}) {
        SCOPED_TRACE(::testing::Message() << "top_k " << top_k << " top_p " << top_p << " temperature " << temperature);
        const SamplingParams sampling{.temperature = temperature, .top_k = static_cast<int32_t>(top_k), .top_p = top_p};
        const size_t num_kept = CountKept(find_cut(row, sampling), order);
        if (top_p < 1) {
          ExpectEndOfNucleus(order, count, sampling, num_kept);
        } else {
          ASSERT_EQ(num_kept, count);
        }
      }
    }
  }
}

}  // namespace

void ExpectCutsAsBySorting(const FindCutOp& find_cut, std::span<const size_t> row_sizes, const CutLimits& limits) {
  RandomValues random(11);
  for (const RowKind& kind : RowKinds()) {
    for (const size_t num_tokens : row_sizes) {
      SCOPED_TRACE(::testing::Message() << kind.name << " of " << num_tokens);
      CutLimits row_limits = limits;
      for (const size_t top_k : {num_tokens / 3 + 1, num_tokens - 1, num_tokens + 1})
        row_limits.top_ks.push_back(top_k);
      ExpectRowToBeCutAsBySorting(find_cut, MakeRow(kind, num_tokens, random), row_limits);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

void ExpectTiesAtTheCutToGoToTheLowestIds(const FindCutOp& find_cut) {
  std::vector<float> row(5000, 1);
  for (size_t id = 0; id < row.size(); id += 5) row[id] = 2;
  row[77] = 3;
  // The cut of top_k 1501 comes after 1 + 1000 larger tokens: at the 500th of the 1s, ids 1, 2, 3, 4, 6, ... without
  // 77.
  const FilterCut cut = find_cut(row, {.top_k = 1501});
  EXPECT_EQ(cut.value, 1);
  EXPECT_EQ(cut.id, 626);
  const FilterCut all_ties = find_cut(row, {.top_k = 1001});
  EXPECT_EQ(all_ties.value, 2);
  EXPECT_GE(all_ties.id, 4995);
  // A share of the weight of the first 1501 tokens ends among the ties that top_k left: 3, then 2s, then some of the
  // 1s.
  const FilterCut both = find_cut(row, {.top_k = 1501, .top_p = 0.9999999f});
  EXPECT_EQ(both.value, 1);
  EXPECT_EQ(both.id, 626);
  // Of 5000 equal tokens half of the weight is before the 2501st.
  EXPECT_EQ(find_cut(std::vector<float>(5000, 1), {.top_p = 0.5f}).id, 2499);
}

void ExpectMinPToKeepTheLeastValueThatIsLikelyEnough(const FindCutOp& find_cut, int num_rounds) {
  RandomValues random(10);
  for (int i = 0; i < num_rounds; ++i) {
    const float max = random.Normal() * 20;
    const SamplingParams sampling{.temperature = static_cast<float>(0.01 + random.Uniform()),
                                  .min_p = static_cast<float>(random.Uniform())};
    const float least = find_cut({max}, sampling).value;
    const double bound = max + std::log(double{sampling.min_p}) * sampling.temperature;
    EXPECT_GE(least, bound);
    EXPECT_LT(std::nextafter(least, -kInfinity), bound);
  }
}

void ExpectMinPWhoseBoundIsZero(const FindCutOp& find_cut) {
  const std::vector<float> row = {std::log(2.0f), 0, -1};
  const FilterCut cut = find_cut(row, {.min_p = 0.5f});
  EXPECT_NEAR(cut.value, 0, 0x1p-24);
  EXPECT_TRUE(cut.Keeps(row[0], 0));
  EXPECT_FALSE(cut.Keeps(row[2], 2));
}

void ExpectMinPOfATinyShareToKeepAll(const FindCutOp& find_cut) {
  const std::vector<float> row = {0, -3e38f};
  EXPECT_TRUE(find_cut(row, {.temperature = 1e38f, .min_p = 1e-30f}).Keeps(row[1], 1));
}

void ExpectTopPNextToOneToKeepAllLikelyTokens(const FindCutOp& find_cut, int num_rounds) {
  RandomValues random(1);
  for (const size_t stride : {4, 8, 16}) {
    for (int round = 0; round < num_rounds; ++round) {
      std::vector<float> row(1024);
      double total = 0;
      for (size_t id = 0; id < row.size(); ++id) {
        row[id] = static_cast<float>(random.Uniform());
        if (id % stride != 0) total += std::exp(row[id]);
      }
      const auto tail = static_cast<float>(std::log(0x1p-24 * total / 1024) - 0.01);
      for (size_t id = 0; id < row.size(); id += stride) row[id] = tail;
      const FilterCut cut = find_cut(row, {.top_p = 1 - 0x1p-24f});
      for (size_t id = 0; id < row.size(); ++id) {
        if (id % stride == 0) continue;
        ASSERT_TRUE(cut.Keeps(row[id], static_cast<int32_t>(id))) << round << " " << id;
      }
    }
  }
}

}  // namespace foretoken::testing
