// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/step_cost.h"

#include <algorithm>
#include <cmath>

namespace foretoken::verifier {
namespace {

constexpr float kMaxWeight = 16;          // length of a bucket's moving mean, in observations
constexpr float kMaxOutlier = 3;          // one observation counts at most as this many times the expected time
constexpr float kUnknownRowCost = 0.02f;  // of a one-row step
// Keeps the slope near 0 until positions have deviated by about 256, four times.
constexpr double kPriorVariance = 4.0 * 256 * 256;
constexpr double kKeep = 1 - 1.0 / 256;  // of the regression, per observation
constexpr float kLeastCurve = 0.1f;      // part of a bucket's mean time that positions never explain

}  // namespace

StepCost::StepCost(int32_t max_rows)
    : max_rows_(max_rows), bucket_of_rows_(max_rows + 1), variance_(kPriorVariance), predicted_(max_rows + 1) {
  // Single rows up to 8, then steps of about a sixth.
  int32_t bucket = 0;
  int32_t last_of_bucket = 0;
  for (int32_t rows = 0; rows <= max_rows; ++rows) {
    if (rows > last_of_bucket) {
      ++bucket;
      last_of_bucket = rows + std::max(0, rows / 6 - 1);
    }
    bucket_of_rows_[rows] = bucket;
  }
  buckets_.resize(bucket + 1);
  for (int32_t rows = 0; rows <= max_rows; ++rows) {
    predicted_[rows] = 1 + kUnknownRowCost * static_cast<float>(std::max(0, rows - 1));
  }
}

int32_t StepCost::NextBucket(int32_t num_rows) const {
  int32_t rows = std::min(num_rows, max_rows_);
  const int32_t bucket = bucket_of_rows_[rows];
  while (rows < max_rows_ && bucket_of_rows_[rows] == bucket) ++rows;
  return rows;
}

void StepCost::Observe(const StepLoad& load, float step_ms) {
  // Without this check the error of one bad clock reading would stay in the means.
  if (!(std::isfinite(step_ms) && step_ms >= 0)) return;
  Bucket& bucket = buckets_[bucket_of_rows_[std::min(load.num_rows, max_rows_)]];
  // A bucket's first step is no exception: it is often the one that page faults make long.
  const float expected_ms = bucket.weight > 0 ? bucket.mean_ms : has_observed_ ? Predict(load) : 0;
  if (expected_ms > 0) step_ms = std::min(step_ms, kMaxOutlier * expected_ms);
  if (bucket.weight > 0) LearnSlope(bucket, load, step_ms);
  has_observed_ = true;
  bucket.weight = std::min(bucket.weight + 1, kMaxWeight);
  bucket.mean_rows += (static_cast<float>(load.num_rows) - bucket.mean_rows) / bucket.weight;
  bucket.mean_positions += (static_cast<float>(load.num_positions) - bucket.mean_positions) / bucket.weight;
  bucket.mean_ms += (step_ms - bucket.mean_ms) / bucket.weight;
  Refit();
}

void StepCost::LearnSlope(const Bucket& bucket, const StepLoad& load, float step_ms) {
  const double positions = static_cast<double>(load.num_positions) - bucket.mean_positions;
  covariance_ = kKeep * covariance_ + positions * (step_ms - bucket.mean_ms);
  variance_ = kKeep * variance_ + (1 - kKeep) * kPriorVariance + positions * positions;
  ms_per_position_ = static_cast<float>(std::max(0.0, covariance_ / variance_));
}

void StepCost::Refit() {
  // Pool adjacent violators: the monotone curve nearest to the means.
  std::vector<Bucket> points;
  points.reserve(buckets_.size());
  for (Bucket bucket : buckets_) {
    if (bucket.weight == 0) continue;
    bucket.mean_ms = std::max(bucket.mean_ms - ms_per_position_ * bucket.mean_positions, kLeastCurve * bucket.mean_ms);
    points.push_back(bucket);
    while (points.size() > 1 && points[points.size() - 2].mean_ms > points.back().mean_ms) {
      const Bucket high = points.back();
      points.pop_back();
      Bucket& low = points.back();
      const float weight = low.weight + high.weight;
      low.mean_ms = (low.mean_ms * low.weight + high.mean_ms * high.weight) / weight;
      low.mean_rows = (low.mean_rows * low.weight + high.mean_rows * high.weight) / weight;
      low.weight = weight;
    }
  }
  // Straight lines between the points. The curve is flat before the first point. After the last point it keeps the last
  // slope, or the slope of unknown rows if that is steeper.
  int32_t rows = 0;
  const auto fill_until = [&](float end_rows, const Bucket& from, float slope) {
    for (; rows <= max_rows_ && static_cast<float>(rows) <= end_rows; ++rows) {
      predicted_[rows] = from.mean_ms + slope * (static_cast<float>(rows) - from.mean_rows);
    }
  };
  fill_until(points.front().mean_rows, points.front(), 0);
  float slope = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    const Bucket& low = points[i - 1];
    slope = (points[i].mean_ms - low.mean_ms) / (points[i].mean_rows - low.mean_rows);
    fill_until(points[i].mean_rows, low, slope);
  }
  fill_until(static_cast<float>(max_rows_), points.back(), std::max(slope, kUnknownRowCost * points.front().mean_ms));
}

}  // namespace foretoken::verifier
