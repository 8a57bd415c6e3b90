// SPDX-License-Identifier: Apache-2.0
#include "common/model/config/rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

namespace foretoken::model {
namespace {

// Interpolates long wavelengths, keeps short ones, and blends those between.
void Apply(const Llama3Scaling& scaling, std::vector<double>& inverse) {
  const auto original_positions = static_cast<double>(scaling.original_max_positions);
  for (double& frequency : inverse) {
    const double turns = original_positions * frequency / (2 * std::numbers::pi);
    if (turns < scaling.low_freq_factor) {
      frequency /= scaling.factor;
    } else if (turns <= scaling.high_freq_factor) {
      const double kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      frequency = (1 - kept) * frequency / scaling.factor + kept * frequency;
    }
  }
}

// The range of pairs in which YaRN blends: (the last kept pair, the first interpolated pair).
std::pair<double, double> YarnRamp(const YarnScaling& scaling, double theta, double head_dim) {
  const auto pair_with_turns = [&](double num_turns) {
    const auto original_positions = static_cast<double>(scaling.original_max_positions);
    return head_dim * std::log(original_positions / (num_turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = pair_with_turns(scaling.beta_fast);
  double high = pair_with_turns(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1);
  return {low, low == high ? high + 0.001 : high};
}

void Apply(const YarnScaling& scaling, double theta, std::vector<double>& inverse) {
  const auto [low, high] = YarnRamp(scaling, theta, 2.0 * static_cast<double>(inverse.size()));
  for (size_t i = 0; i < inverse.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] = inverse[i] / scaling.factor * interpolated + inverse[i] * (1 - interpolated);
  }
}

double YarnAttentionFactor(const YarnScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  const auto magnitude = [&](double mscale) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(scaling.factor) + 1.0;
  };
  if (scaling.mscale && scaling.mscale_all_dim) return magnitude(*scaling.mscale) / magnitude(*scaling.mscale_all_dim);
  return magnitude(1);
}

}  // namespace

bool TakesLongDivisors(const RopeConfig& rope, int64_t max_positions) {
  const auto* divided = std::get_if<DivisorScaling>(&rope.scaling);
  return divided != nullptr && !divided->long_divisors.empty() && max_positions > divided->original_max_positions;
}

RopeFrequencies ComputeRopeFrequencies(const RopeConfig& rope, int64_t rotary_dim, int64_t max_positions) {
  RopeFrequencies frequencies;
  frequencies.inverse.resize(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < frequencies.inverse.size(); ++i) {
    frequencies.inverse[i] = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
  }
  if (const auto* linear = std::get_if<LinearScaling>(&rope.scaling)) {
    for (double& frequency : frequencies.inverse) frequency /= linear->factor;
  } else if (const auto* llama3 = std::get_if<Llama3Scaling>(&rope.scaling)) {
    Apply(*llama3, frequencies.inverse);
  } else if (const auto* yarn = std::get_if<YarnScaling>(&rope.scaling)) {
    Apply(*yarn, rope.theta, frequencies.inverse);
    frequencies.attention_factor = YarnAttentionFactor(*yarn);
  } else if (const auto* divided = std::get_if<DivisorScaling>(&rope.scaling)) {
    const bool is_long = TakesLongDivisors(rope, max_positions);
    const std::vector<double>& divisors = is_long ? divided->long_divisors : divided->divisors;
    for (size_t i = 0; i < frequencies.inverse.size(); ++i) frequencies.inverse[i] /= divisors.at(i);
    frequencies.attention_factor = divided->attention_factor;
  }
  return frequencies;
}

RopeTables MakeRopeTables(const RopeFrequencies& frequencies, int64_t max_positions) {
  RopeTables tables;
  const size_t num_entries = static_cast<size_t>(max_positions) * frequencies.inverse.size();
  tables.cos.reserve(num_entries);
  tables.sin.reserve(num_entries);
  for (int64_t position = 0; position < max_positions; ++position) {
    for (const double frequency : frequencies.inverse) {
      const double angle = static_cast<double>(position) * frequency;
      tables.cos.push_back(static_cast<float>(frequencies.attention_factor * std::cos(angle)));
      tables.sin.push_back(static_cast<float>(frequencies.attention_factor * std::sin(angle)));
    }
  }
  return tables;
}

}  // namespace foretoken::model
