// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/match_confidence.h"

#include <algorithm>
#include <bit>

namespace foretoken::speculation {
namespace {

// The prior counts as this many trials. Older trials fade, so that about the last kMemoryTrials count.
constexpr float kPriorTrials = 8;
constexpr float kMemoryTrials = 128;
// A match of n tokens is right with prior odds of n times this.
constexpr float kPriorOddsPerToken = 0.6f;

}  // namespace

MatchConfidence::MatchConfidence() {
  for (int32_t length = kMaxLength; length >= 1; --length) {
    Bucket& bucket = buckets_[BucketOf(length)];
    const float odds = kPriorOddsPerToken * length;
    bucket.prior = bucket.estimate = odds / (1 + odds);
  }
}

void MatchConfidence::Record(int32_t length, bool found) {
  Bucket& bucket = buckets_[BucketOf(length)];
  if (bucket.num_trials >= kMemoryTrials) {
    bucket.num_trials /= 2;
    bucket.num_found /= 2;
  }
  bucket.num_trials += 1;
  bucket.num_found += found;
  bucket.estimate = (bucket.num_found + kPriorTrials * bucket.prior) / (bucket.num_trials + kPriorTrials);
}

int32_t MatchConfidence::BucketOf(int32_t length) {
  if (length <= 8) return length - 1;
  return std::min<int32_t>(kNumBuckets - 1, 4 + std::bit_width(static_cast<uint32_t>(length)));
}

}  // namespace foretoken::speculation
