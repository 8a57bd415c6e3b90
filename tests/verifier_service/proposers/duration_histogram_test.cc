// SPDX-License-Identifier: Apache-2.0
// The histogram of round trips. If this test fails, the metric foretoken_proposer_round_trip_seconds is wrong.
#include "verifier_service/proposers/duration_histogram.h"

#include <gtest/gtest.h>

namespace foretoken::verifier {
namespace {

TEST(DurationHistogram, CountsUpToAndWithEachBound) {
  DurationHistogram histogram;
  histogram.Add(absl::ZeroDuration());
  histogram.Add(absl::Microseconds(100));
  histogram.Add(absl::Microseconds(101));
  histogram.Add(absl::Seconds(10));
  histogram.Add(absl::Seconds(11));
  EXPECT_EQ(histogram.buckets[0], 2);
  EXPECT_EQ(histogram.buckets[1], 1);
  EXPECT_EQ(histogram.buckets[15], 1);
  EXPECT_EQ(histogram.buckets[16], 1);
  EXPECT_NEAR(histogram.sum_seconds, 21.000201, 1e-9);
}

}  // namespace
}  // namespace foretoken::verifier
