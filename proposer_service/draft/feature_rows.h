// SPDX-License-Identifier: Apache-2.0
// The features that the verifier has made for the rows of one context, from the first row that may still need its
// feature to the last one that has one. Row j takes the feature of the token before its own.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace foretoken::proposer {

class FeatureRows {
 public:
  // `width`: the values of a feature, W.
  explicit FeatureRows(int64_t width = 1) : width_(width) {}

  // Appends the features of the next rows, [n, W] bf16.
  void Append(std::span<const uint16_t> values) {
    values_.insert(values_.end(), values.begin(), values.end());
    num_unused_ += static_cast<int64_t>(values.size());
  }

  // The rows below it have, or had, a feature.
  int32_t end_row() const { return first_row_ + static_cast<int32_t>(num_values() / width_); }
  // The values that no row has taken.
  int64_t num_unused() const { return num_unused_; }
  // The memory of the values.
  size_t num_bytes() const { return values_.capacity() * sizeof(uint16_t); }

  // Takes the features of rows [first_row, first_row + num_rows). The object forgets the features before the last of
  // them and keeps that one, because the last row of a context may be computed again.
  std::vector<uint16_t> Take(int32_t first_row, int32_t num_rows) {
    const auto begin = values_.begin() + num_forgotten_ + (first_row - first_row_) * width_;
    const std::vector<uint16_t> taken(begin, begin + num_rows * width_);
    const int32_t last_row = first_row + num_rows - 1;
    num_forgotten_ += (last_row - first_row_) * width_;
    first_row_ = last_row;
    num_unused_ = std::min(num_unused_, num_values() - width_);
    if (num_forgotten_ > num_values()) {  // moves each value once, in the mean
      values_.erase(values_.begin(), values_.begin() + num_forgotten_);
      num_forgotten_ = 0;
      // A long prompt's features come together, and its session may live long. A few rows of room stay for each step.
      if (values_.capacity() > 4 * (values_.size() + static_cast<size_t>(width_))) values_.shrink_to_fit();
    }
    return taken;
  }

 private:
  int64_t num_values() const { return static_cast<int64_t>(values_.size()) - num_forgotten_; }

  int64_t width_;
  int32_t first_row_ = 0;
  std::vector<uint16_t> values_;  // forgotten values, then [n, W]
  int64_t num_forgotten_ = 0;
  int64_t num_unused_ = 0;
};

}  // namespace foretoken::proposer
