// SPDX-License-Identifier: Apache-2.0
// The errors of a wrong rule over random distributions of three tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "tests/testing/cases/random_values.h"
#include "tests/testing/distributions/small_distribution.h"
#include "tests/testing/distributions/small_proposer.h"

namespace foretoken::testing {

inline constexpr int kNumDistributions = 40;
inline constexpr PathNumbering kPaths{.num_tokens = 3, .max_len = 3};

struct Errors {
  double least = 1, mean = 0, most = 0;
};

// True if every random distribution shows an error, and the errors span the range measured for other distributions.
inline bool Covers(const Errors& errors, double least, double most) {
  return errors.least > 1e-2 && errors.least <= least && errors.most >= most;
}

// Returns the errors of a process over random dense distributions.
inline Errors OverRandomDistributions(
    const std::function<double(const SmallDistribution& target, const SmallDistribution& draft)>& error_of) {
  RandomValues random(1);
  Errors errors;
  for (int i = 0; i < kNumDistributions; ++i) {
    const SmallDistribution target = SmallDistribution::Random(kPaths, DistributionKind::kDense, random);
    const SmallDistribution draft = SmallDistribution::Random(kPaths, DistributionKind::kDense, random);
    const double error = error_of(target, draft);
    errors.least = std::min(errors.least, error);
    errors.mean += error / kNumDistributions;
    errors.most = std::max(errors.most, error);
  }
  return errors;
}

inline SmallProposer Full(const SmallDistribution& distribution, int32_t depth, size_t num_children,
                          Drawing drawing = Drawing::kSampled) {
  return {
      .distribution = &distribution, .drawing = drawing, .wants_child = [depth, num_children](const NodePlace& place) {
        return static_cast<int32_t>(place.path.size()) < depth && place.siblings.size() < num_children;
      }};
}

}  // namespace foretoken::testing
