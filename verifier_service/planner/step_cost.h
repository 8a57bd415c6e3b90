// SPDX-License-Identifier: Apache-2.0
// The duration of a step as a function of its rows and of the context positions that they read. Learned from steps.
//
//   step_ms = curve(rows) + slope * (positions read)
//
// Row counts fall into buckets, each with moving means. The curve is linear between buckets and never decreases with
// more rows (pool adjacent violators). The slope is a moving regression on the deviations within the buckets. Before
// the first observation each row beyond the first costs 2 % of a one-row step, and a position costs nothing.
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

namespace foretoken::verifier {

// The parts of a step that its duration depends on.
struct StepLoad {
  int32_t num_rows = 0;
  int64_t num_positions = 0;  // context positions that attention reads, summed over rows
};

class StepCost {
 public:
  explicit StepCost(int32_t max_rows);

  // Ignores a time that is negative or not finite.
  void Observe(const StepLoad& load, float step_ms);
  // Returns milliseconds; before the first observation, units of a one-row step.
  float Predict(const StepLoad& load) const {
    return predicted_[load.num_rows < max_rows_ ? load.num_rows : max_rows_] +
           ms_per_position_ * static_cast<float>(load.num_positions);
  }
  // Returns the smallest row count of the next bucket.
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
  bool has_observed_ = false;
  std::vector<float> predicted_;  // [max_rows + 1], without positions
};

}  // namespace foretoken::verifier
