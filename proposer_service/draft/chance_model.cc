// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/chance_model.h"

#include <algorithm>
#include <cmath>

namespace foretoken::proposer {
namespace {

constexpr double kRate = 0.2;
constexpr double kLeastInverseTau = 0.05, kMostInverseTau = 4;
constexpr double kMostRest = 8;
// Tokens of clients teach the model, so that neither one score may count for more than many others, nor a time of odd
// ones for ever: a slope has a bound, and the sums of squares forget.
constexpr double kMostSlope = 64;
constexpr double kKept = 0.999;  // of the sums, at each observation
constexpr float kLeastChance = 1e-6f;

bool AreNumbers(std::span<const float> scores) {
  return std::ranges::all_of(scores, [](float score) { return std::isfinite(score); });
}

}  // namespace

std::vector<double> ChanceModel::Distribution(std::span<const float> scores) const {
  std::vector<double> distribution;
  distribution.reserve(scores.size() + 1);
  const double last = *std::min_element(scores.begin(), scores.end());
  for (const float score : scores) distribution.push_back(inverse_tau_ * (score - last));
  distribution.push_back(rest_ + std::log(static_cast<double>(scores.size())));
  const double max = *std::max_element(distribution.begin(), distribution.end());
  double total = 0;
  for (double& weight : distribution) total += weight = std::exp(weight - max);
  for (double& weight : distribution) weight /= total;
  return distribution;
}

std::vector<float> ChanceModel::Chances(std::span<const float> scores) const {
  if (scores.empty()) return {};
  if (!AreNumbers(scores)) return std::vector<float>(scores.size(), kLeastChance);
  const std::vector<double> distribution = Distribution(scores);
  std::vector<float> chances;
  chances.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    chances.push_back(std::clamp(static_cast<float>(distribution[i]), kLeastChance, 1.0f));
  }
  return chances;
}

void ChanceModel::Observe(std::span<const float> scores, std::optional<size_t> committed) {
  if (scores.empty() || !AreNumbers(scores)) return;
  const std::vector<double> distribution = Distribution(scores);
  const double last = *std::min_element(scores.begin(), scores.end());
  const auto above_last = [&](size_t i) { return scores[i] - last; };
  double inverse_tau_slope = committed.has_value() ? above_last(*committed) : 0;
  for (size_t i = 0; i < scores.size(); ++i) inverse_tau_slope -= distribution[i] * above_last(i);
  const double rest_slope = (committed.has_value() ? 0 : 1) - distribution.back();
  inverse_tau_slope = std::clamp(inverse_tau_slope, -kMostSlope, kMostSlope);
  inverse_tau_squares_ = kKept * inverse_tau_squares_ + inverse_tau_slope * inverse_tau_slope;
  rest_squares_ = kKept * rest_squares_ + rest_slope * rest_slope;
  inverse_tau_ = std::clamp(inverse_tau_ + kRate * inverse_tau_slope / std::sqrt(inverse_tau_squares_),
                            kLeastInverseTau, kMostInverseTau);
  rest_ = std::clamp(rest_ + kRate * rest_slope / std::sqrt(rest_squares_), -kMostRest, kMostRest);
}

}  // namespace foretoken::proposer
