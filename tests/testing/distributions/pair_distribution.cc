// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/distributions/pair_distribution.h"

namespace foretoken::testing {
namespace {

struct Cells {
  std::vector<int64_t> counts;
  std::vector<double> probabilities;

  void Add(int64_t count, double probability) {
    counts.push_back(count);
    probabilities.push_back(probability);
  }
};

// Adds the pairs of one likely first token.
void AddPairs(const std::map<int32_t, int64_t>& observed, double first, const std::vector<double>& second,
              double num_pairs, Cells* cells) {
  double rest = 0;
  int64_t num_rest = 0;
  for (size_t token_id = 0; token_id < second.size(); ++token_id) {
    const auto found = observed.find(static_cast<int32_t>(token_id));
    const int64_t count = found == observed.end() ? 0 : found->second;
    const double probability = first * second[token_id];
    if (probability == 0 || num_pairs * probability >= GTestResult::kMinExpected) {
      cells->Add(count, probability);
    } else {
      num_rest += count;
      rest += probability;
    }
  }
  cells->Add(num_rest, rest);
}

}  // namespace

GTestResult TestPairs(const std::vector<Pair>& pairs, const PairDistribution& distribution) {
  std::map<int32_t, std::map<int32_t, int64_t>> observed;  // by first, then second token
  for (const auto& [first, second] : pairs) ++observed[first][second];
  Cells cells;
  for (size_t token_id = 0; token_id < distribution.first.size(); ++token_id) {
    const auto first = static_cast<int32_t>(token_id);
    const auto second = distribution.second.find(first);
    if (second != distribution.second.end()) {
      AddPairs(observed[first], distribution.first[token_id], second->second, static_cast<double>(pairs.size()),
               &cells);
      continue;
    }
    int64_t count = 0;
    for (const auto& [token, num_observed] : observed[first]) count += num_observed;
    cells.Add(count, distribution.first[token_id]);
  }
  return GTest(cells.counts, cells.probabilities);
}

GTestResult TestIndependentPairs(const std::vector<Pair>& pairs, const std::vector<double>& distribution) {
  PairDistribution product = {.first = distribution};
  for (size_t token_id = 0; token_id < distribution.size(); ++token_id) {
    const double expected = static_cast<double>(pairs.size()) * distribution[token_id];
    if (expected >= GTestResult::kMinExpected) product.second[static_cast<int32_t>(token_id)] = distribution;
  }
  return TestPairs(pairs, product);
}

}  // namespace foretoken::testing
