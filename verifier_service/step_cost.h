// SPDX-License-Identifier: Apache-2.0
// How long a step takes as a function of its rows, learned from the steps themselves.
//
// Rows are gathered in buckets, each with a moving mean; between buckets the cost is a straight line, and it never
// falls with more rows (pool adjacent violators). Before anything is known a row beyond the first is taken to cost 2 %
// of a step. Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace foretoken::verifier {

class StepCost {
 public:
  explicit StepCost(int32_t max_rows);

  void Observe(int32_t num_rows, float step_ms);
  // In milliseconds; before the first observation in units of a one-row step.
  float Predict(int32_t num_rows) const { return predicted_[num_rows < max_rows_ ? num_rows : max_rows_]; }
  // The smallest row count of the next bucket: where a curious planner looks.
  int32_t NextBucket(int32_t num_rows) const;
  bool empty() const { return is_empty_; }

 private:
  struct Bucket {
    float mean_rows = 0;
    float mean_ms = 0;
    float weight = 0;  // observations, at most kMaxWeight
  };

  void Refit();

  int32_t max_rows_;
  bool is_empty_ = true;
  std::vector<int32_t> bucket_of_rows_;  // [max_rows + 1]
  std::vector<Bucket> buckets_;
  std::vector<float> predicted_;  // [max_rows + 1]
};

}  // namespace foretoken::verifier
