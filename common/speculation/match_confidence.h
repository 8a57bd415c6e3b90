// SPDX-License-Identifier: Apache-2.0
// The value of matches by their length: how often the next token was among a match's continuations, learned from the
// sequence itself. Until there are trials, a prior says that long matches are right and short ones are not.
#pragma once

#include <array>
#include <cstdint>

namespace foretoken::speculation {

class MatchConfidence {
 public:
  // Longer matches count as this length.
  static constexpr int32_t kMaxLength = 64;

  MatchConfidence();
  void Record(int32_t length, bool found);
  // In (0, 1); length is at least 1.
  float Estimate(int32_t length) const { return buckets_[BucketOf(length)].estimate; }

 private:
  static constexpr int32_t kNumBuckets = 11;  // lengths 1 to 8, below 16, below 32, longer
  struct Bucket {
    float num_trials = 0;
    float num_found = 0;
    float prior = 0;  // for the shortest length in the bucket
    float estimate = 0;
  };
  static int32_t BucketOf(int32_t length);

  std::array<Bucket, kNumBuckets> buckets_;
};

}  // namespace foretoken::speculation
