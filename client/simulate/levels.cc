// SPDX-License-Identifier: Apache-2.0
#include "client/simulate/levels.h"

#include <algorithm>

namespace foretoken::client {
namespace {

// The levels beside a number of sequences, and the weight of the upper one. Equal before the first level and beyond the
// last one.
struct Neighbours {
  const ProfileLevel& lower;
  const ProfileLevel& upper;
  double weight = 0;
};

Neighbours Find(std::span<const ProfileLevel> levels, int32_t num_sequences) {
  const auto upper = std::ranges::lower_bound(levels, num_sequences, {}, &ProfileLevel::num_sequences);
  if (upper == levels.begin()) return {.lower = levels.front(), .upper = levels.front()};
  if (upper == levels.end()) return {.lower = levels.back(), .upper = levels.back()};
  const ProfileLevel& lower = *(upper - 1);
  const double width = upper->num_sequences - lower.num_sequences;
  return {.lower = lower, .upper = *upper, .weight = (num_sequences - lower.num_sequences) / width};
}

}  // namespace

double StepMs(std::span<const ProfileLevel> levels, int32_t num_sequences) {
  const auto [lower, upper, weight] = Find(levels, num_sequences);
  const double ms = lower.step_ms + weight * (upper.step_ms - lower.step_ms);
  if (num_sequences <= levels.back().num_sequences || levels.size() < 2) return ms;
  const ProfileLevel& last = levels.back();
  const ProfileLevel& before = levels[levels.size() - 2];
  const double slope = (last.step_ms - before.step_ms) / (last.num_sequences - before.num_sequences);
  return ms + std::max(0.0, slope) * (num_sequences - last.num_sequences);
}

std::vector<double> AcceptedLengths(std::span<const ProfileLevel> levels, int32_t num_sequences) {
  const auto [lower, upper, weight] = Find(levels, num_sequences);
  std::vector<double> shares(std::max(lower.accepted_lengths.size(), upper.accepted_lengths.size()));
  for (size_t k = 0; k < lower.accepted_lengths.size(); ++k) shares[k] += (1 - weight) * lower.accepted_lengths[k];
  for (size_t k = 0; k < upper.accepted_lengths.size(); ++k) shares[k] += weight * upper.accepted_lengths[k];
  return shares;
}

double StepMsOfRows(std::span<const ProfileRows> rows, double num_rows) {
  const auto line_at = [num_rows](const ProfileRows& a, const ProfileRows& b) {
    return a.step_ms + (num_rows - a.num_rows) / (b.num_rows - a.num_rows) * (b.step_ms - a.step_ms);
  };
  const auto upper = std::ranges::lower_bound(rows, num_rows, {}, &ProfileRows::num_rows);
  if (upper == rows.begin()) return rows.front().step_ms;
  if (upper != rows.end()) return line_at(*(upper - 1), *upper);
  const ProfileRows& last = rows.back();
  const auto half = std::ranges::upper_bound(rows, last.num_rows / 2, {}, &ProfileRows::num_rows);
  return half == rows.begin() ? last.step_ms : line_at(*(half - 1), last);
}

}  // namespace foretoken::client
