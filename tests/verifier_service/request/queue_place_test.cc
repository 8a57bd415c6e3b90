// SPDX-License-Identifier: Apache-2.0
// Places in the bounded queue. If this test fails, the server refuses requests while it has room, or accepts more
// waiting requests than its bounds allow.
#include "verifier_service/request/queue_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;

class QueuePlaceTest : public ::testing::Test {
 protected:
  QueuePlace Filled(int64_t num_samples, int64_t num_tokens) {
    QueuePlace place = space_.Reserve().value();
    EXPECT_EQ(place.Fill(num_samples, num_tokens), absl::OkStatus());
    return place;
  }
  void ExpectLoad(const QueueLoad& expected) {
    EXPECT_EQ(space_.load().num_requests, expected.num_requests);
    EXPECT_EQ(space_.load().num_samples, expected.num_samples);
    EXPECT_EQ(space_.load().num_tokens, expected.num_tokens);
  }

  QueueSpace space_{{.num_requests = 3, .num_samples = 10, .num_tokens = 100}};
};

TEST_F(QueuePlaceTest, EachRefusalNamesItsBound) {
  const QueuePlace first = Filled(7, 90);
  QueuePlace second = space_.Reserve().value();
  const absl::Status samples = second.Fill(4, 1);
  EXPECT_EQ(samples.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(samples.message(), HasSubstr("max_queued_samples is 10, 7 wait, and the request has 4"));
  ExpectLoad({.num_requests = 2, .num_samples = 7, .num_tokens = 90});
  {
    QueuePlace third = space_.Reserve().value();
    EXPECT_THAT(third.Fill(3, 11).message(), HasSubstr("max_queued_tokens is 100, 90 wait, and the request has 11"));
    EXPECT_THAT(space_.Reserve().status().message(), HasSubstr("max_queued_requests is 3"));
  }
  ExpectLoad({.num_requests = 2, .num_samples = 7, .num_tokens = 90});
}

TEST_F(QueuePlaceTest, FourBytesCountAsATokenUntilTheTokensAreKnown) {
  QueuePlace first = space_.Reserve(/*num_bytes=*/4 * 60).value();
  ExpectLoad({.num_requests = 1, .num_tokens = 60});
  EXPECT_THAT(space_.Reserve(4 * 41).status().message(),
              HasSubstr("max_queued_tokens is 100, 60 wait, and the request has 41"));
  ExpectLoad({.num_requests = 1, .num_tokens = 60});
  EXPECT_EQ(first.Fill(1, 99), absl::OkStatus());
  ExpectLoad({.num_requests = 1, .num_samples = 1, .num_tokens = 99});
}

TEST_F(QueuePlaceTest, ARequestThatIsTooLargeWaitsAlone) {
  {
    const QueuePlace large = Filled(11, 101);
    EXPECT_FALSE(space_.Reserve()->Fill(1, 1).ok());
  }
  ExpectLoad({});
}

TEST_F(QueuePlaceTest, ARequestCountsWhileOneOfItsSamplesWaits) {
  QueuePlace place = Filled(2, 5);
  place.BeginSample();
  ExpectLoad({.num_requests = 1, .num_samples = 1, .num_tokens = 5});
  place.BeginSample();
  ExpectLoad({});
  place.ReturnSample();
  ExpectLoad({.num_requests = 1, .num_samples = 1, .num_tokens = 5});
  QueuePlace moved = std::move(place);
  ExpectLoad({.num_requests = 1, .num_samples = 1, .num_tokens = 5});
  moved.BeginSample();
  ExpectLoad({});
}

TEST_F(QueuePlaceTest, RequestsOfLowerPriorityAndUnreadRequestsAreNotAhead) {
  const QueuePlace unread = space_.Reserve().value();
  QueuePlace low = space_.Reserve().value(), high = space_.Reserve().value();
  ASSERT_EQ(low.Fill(1, 1, /*priority=*/-kMaxPriority), absl::OkStatus());
  ASSERT_EQ(high.Fill(2, 1, /*priority=*/kMaxPriority), absl::OkStatus());
  EXPECT_EQ(space_.NumAhead(-kMaxPriority), 2);
  EXPECT_EQ(space_.NumAhead(0), 1);
  EXPECT_EQ(space_.NumAhead(kMaxPriority), 1);
  for (int i = 0; i < 2; ++i) high.BeginSample();
  EXPECT_EQ(space_.NumAhead(0), 0);
  high.ReturnSample();
  EXPECT_EQ(space_.NumAhead(0), 1);
  low = QueuePlace();
  EXPECT_EQ(space_.NumAhead(-kMaxPriority), 1);
}

TEST_F(QueuePlaceTest, AReturnedSampleIsNeverRefused) {
  QueuePlace first = Filled(10, 1);
  for (int i = 0; i < 10; ++i) first.BeginSample();
  const QueuePlace second = Filled(10, 100);
  first.ReturnSample();
  ExpectLoad({.num_requests = 2, .num_samples = 11, .num_tokens = 101});
  EXPECT_FALSE(space_.Reserve()->Fill(1, 1).ok());
}

}  // namespace
}  // namespace foretoken::verifier
