// SPDX-License-Identifier: Apache-2.0
// How long a step takes as a function of its rows and of the context they read, learned from the steps themselves.
//
//   step_ms = curve(rows) + slope * (positions read)
//
// Rows are gathered in buckets, each with moving means; between buckets the curve is a straight line, and it never
// falls with more rows (pool adjacent violators). The slope is a moving regression on what moves within the buckets.
// Before anything is known a row beyond the first is taken to cost 2 % of a step, and a position nothing.
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

namespace foretoken::verifier {

// What a step computes, as far as its duration goes.
struct StepLoad {
  int32_t num_rows = 0;
  int64_t num_positions = 0;  // of the context, that attention reads: summed over rows
};

class StepCost {
 public:
  explicit StepCost(int32_t max_rows);

  // A time that is no number, or negative, teaches nothing.
  void Observe(const StepLoad& load, float step_ms);
  // In milliseconds; before the first observation in units of a one-row step.
  float Predict(const StepLoad& load) const {
    return predicted_[load.num_rows < max_rows_ ? load.num_rows : max_rows_] +
           ms_per_position_ * static_cast<float>(load.num_positions);
  }
  // The smallest row count of the next bucket: where a curious planner looks.
  int32_t NextBucket(int32_t num_rows) const;

 private:
  struct Bucket {
    float mean_rows = 0;
    float mean_positions = 0;
    float mean_ms = 0;
    float weight = 0;  // observations, at most kMaxWeight
  };

  void LearnSlope(const Bucket& bucket, const StepLoad& load, float step_ms);
  void Refit();

  int32_t max_rows_;
  std::vector<int32_t> bucket_of_rows_;  // [max_rows + 1]
  std::vector<Bucket> buckets_;
  double covariance_ = 0;  // of positions and time within the buckets, decaying sums
  double variance_;        // of positions
  float ms_per_position_ = 0;
  std::vector<float> predicted_;  // [max_rows + 1], without positions
};

}  // namespace foretoken::verifier
