// SPDX-License-Identifier: Apache-2.0
// How wrong a wrong rule is, over random laws of three tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "tests/testing/cases/random_values.h"
#include "tests/testing/distributions/small_distribution.h"
#include "tests/testing/distributions/small_proposer.h"

namespace foretoken::testing {

inline constexpr int kNumLaws = 40;
inline constexpr PathNumbering kPaths{.num_tokens = 3, .max_len = 3};

struct Errors {
  double least = 1, mean = 0, most = 0;
};

// Every random law is caught, and their errors are spread over what was measured for others.
inline bool Covers(const Errors& errors, double least, double most) {
  return errors.least > 1e-2 && errors.least <= least && errors.most >= most;
}

// Of a process over random dense laws.
inline Errors OverRandomLaws(const std::function<double(const SmallLaw& target, const SmallLaw& draft)>& error_of) {
  RandomValues random(1);
  Errors errors;
  for (int i = 0; i < kNumLaws; ++i) {
    const SmallLaw target = SmallLaw::Random(kPaths, LawKind::kDense, random);
    const SmallLaw draft = SmallLaw::Random(kPaths, LawKind::kDense, random);
    const double error = error_of(target, draft);
    errors.least = std::min(errors.least, error);
    errors.mean += error / kNumLaws;
    errors.most = std::max(errors.most, error);
  }
  return errors;
}

inline SmallProposer Full(const SmallLaw& law, int32_t depth, size_t num_children,
                          Drawing drawing = Drawing::kSampled) {
  return {.law = &law, .drawing = drawing, .wants_child = [depth, num_children](const NodePlace& place) {
            return static_cast<int32_t>(place.path.size()) < depth && place.siblings.size() < num_children;
          }};
}

}  // namespace foretoken::testing
