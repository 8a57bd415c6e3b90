// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/distributions/small_distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/check.h"

namespace foretoken::testing {
namespace {

double SumOf(std::span<const double> row) { return std::accumulate(row.begin(), row.end(), 0.0); }

template <typename RowFunction>
void ForEachPath(const PathNumbering& paths, std::vector<int32_t>& path, const RowFunction& function) {
  function(path);
  if (static_cast<int32_t>(path.size()) == paths.max_len) return;
  for (int32_t token_id = 0; token_id < paths.num_tokens; ++token_id) {
    path.push_back(token_id);
    ForEachPath(paths, path, function);
    path.pop_back();
  }
}

template <typename RowFunction>
void ForEachPath(const PathNumbering& paths, const RowFunction& function) {
  std::vector<int32_t> path;
  ForEachPath(paths, path, function);
}

}  // namespace

size_t PathNumbering::NumberOf(std::span<const int32_t> path) const {
  FT_CHECK(static_cast<int32_t>(path.size()) <= max_len);
  size_t number = 0;
  for (const int32_t token_id : path) {
    FT_CHECK(token_id >= 0 && token_id < num_tokens);
    number = number * num_tokens + token_id + 1;
  }
  return number;
}

size_t PathNumbering::num_paths() const {
  size_t num_paths = 0;
  for (int32_t len = 0; len <= max_len; ++len) num_paths = num_paths * num_tokens + 1;
  return num_paths;
}

SmallDistribution SmallDistribution::Random(const PathNumbering& paths, DistributionKind kind, RandomValues& random) {
  SmallDistribution distribution(paths);
  ForEachPath(paths, [&](std::span<const int32_t> path) {
    const std::span<double> row = distribution.At(path);
    const int32_t sure = random.Below(paths.num_tokens);
    for (int32_t id = 0; id < paths.num_tokens; ++id) {
      // Squares make some tokens rare. The values are floats, because draft_prob is a float in the protocol.
      const double value = static_cast<float>(std::pow(random.Uniform(), 2) + 0.01);
      const bool is_zero =
          kind == DistributionKind::kPoint || (kind == DistributionKind::kWithZeros && random.Coin(0.4));
      row[id] = is_zero && id != sure ? 0 : value;
    }
  });
  return distribution;
}

SmallDistribution SmallDistribution::Constant(const PathNumbering& paths, std::span<const double> row) {
  SmallDistribution distribution(paths);
  ForEachPath(paths,
              [&](std::span<const int32_t> path) { std::copy(row.begin(), row.end(), distribution.At(path).begin()); });
  return distribution;
}

std::span<const double> SmallDistribution::At(std::span<const int32_t> path) const {
  return std::span(rows_).subspan(paths_.NumberOf(path) * paths_.num_tokens, paths_.num_tokens);
}

std::span<double> SmallDistribution::At(std::span<const int32_t> path) {
  return std::span(rows_).subspan(paths_.NumberOf(path) * paths_.num_tokens, paths_.num_tokens);
}

SmallDistribution Truncated(const SmallDistribution& distribution, int32_t num_kept) {
  SmallDistribution truncated = distribution;
  ForEachPath(distribution.paths(), [&](std::span<const int32_t> path) {
    const std::span<double> row = truncated.At(path);
    std::vector<int32_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
    for (size_t i = num_kept; i < order.size(); ++i) row[order[i]] = 0;
  });
  return truncated;
}

SmallDistribution Without(const SmallDistribution& distribution, const SmallDistribution& other) {
  SmallDistribution without = distribution;
  ForEachPath(distribution.paths(), [&](std::span<const int32_t> path) {
    const std::span<double> row = without.At(path);
    for (size_t id = 0; id < row.size(); ++id) {
      if (other.At(path)[id] > 0) row[id] = 0;
    }
    if (SumOf(row) == 0) std::copy_n(distribution.At(path).begin(), row.size(), row.begin());
  });
  return without;
}

void EmittedDistribution::Add(std::span<const int32_t> emitted, double probability) {
  const PathNumbering& paths = target_.paths();
  const auto path = emitted.first(std::min<size_t>(emitted.size(), paths.max_len));
  const bool is_known =
      std::all_of(path.begin(), path.end(), [&](int32_t id) { return id >= 0 && id < paths.num_tokens; });
  if (is_known) mass_[paths.NumberOf(path)] += probability;
}

std::vector<double> EmittedDistribution::PassedOn(std::vector<double> mass) const {
  const PathNumbering& paths = target_.paths();
  // A path comes before its extensions, so its mass is complete when it is passed on.
  ForEachPath(paths, [&](std::span<const int32_t> path) {
    if (static_cast<int32_t>(path.size()) == paths.max_len) return;
    const size_t number = paths.NumberOf(path);
    const std::span<const double> row = target_.At(path);
    const double row_sum = SumOf(row);
    for (int32_t id = 0; id < paths.num_tokens; ++id) {
      mass[number * paths.num_tokens + id + 1] += mass[number] * row[id] / row_sum;
    }
  });
  return mass;
}

double EmittedDistribution::Error() const {
  EmittedDistribution target(target_);
  target.Add({}, 1);
  return Distance(target);
}

double EmittedDistribution::Distance(const EmittedDistribution& other) const {
  const std::vector<double> mine = PassedOn(mass_), theirs = PassedOn(other.mass_);
  double difference = 0, sum = 0;
  ForEachPath(target_.paths(), [&](std::span<const int32_t> path) {
    if (static_cast<int32_t>(path.size()) < target_.paths().max_len) return;
    const size_t number = target_.paths().NumberOf(path);
    difference += std::abs(mine[number] - theirs[number]);
    sum += mine[number] - theirs[number];
  });
  return (difference + std::abs(sum)) / 2;
}

std::vector<double> EmittedDistribution::TargetProbs() const {
  EmittedDistribution target(target_);
  target.Add({}, 1);
  const std::vector<double> probs = target.PassedOn(target.mass_);
  PathNumbering shorter = target_.paths();
  --shorter.max_len;
  return {probs.begin() + static_cast<std::ptrdiff_t>(shorter.num_paths()), probs.end()};
}

double EmittedDistribution::FirstToken(int32_t token_id) const {
  const PathNumbering& paths = target_.paths();
  const std::span<const double> row = target_.At({});
  double chance = mass_[0] * row[token_id] / SumOf(row);
  ForEachPath(paths, [&](std::span<const int32_t> path) {
    if (!path.empty() && path[0] == token_id) chance += mass_[paths.NumberOf(path)];
  });
  return chance;
}

}  // namespace foretoken::testing
