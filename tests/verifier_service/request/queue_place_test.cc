// SPDX-License-Identifier: Apache-2.0
// Places in the bounded queue. If this test fails, the server refuses requests while it has room, accepts more waiting
// requests than its bounds allow, or lets one tenant keep the others out.
#include "verifier_service/request/queue_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;

std::optional<std::string> FurthestAboveShare(const QueueSpace& space, const std::string& but = "nobody") {
  return space.FurthestAboveShare([&](absl::string_view tenant) { return tenant != but; });
}

class QueuePlaceTest : public ::testing::Test {
 protected:
  QueuePlace Filled(int64_t num_samples, int64_t num_tokens) {
    QueuePlace place = space_.Reserve().value();
    EXPECT_EQ(place.Fill({.num_samples = num_samples, .num_tokens = num_tokens}), absl::OkStatus());
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
  const absl::Status samples = second.Fill({.num_samples = 4, .num_tokens = 1});
  EXPECT_EQ(samples.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(samples.message(), HasSubstr("max_queued_samples is 10, 7 wait, and the request has 4"));
  ExpectLoad({.num_requests = 2, .num_samples = 7, .num_tokens = 90});
  {
    QueuePlace third = space_.Reserve().value();
    EXPECT_THAT(third.Fill({.num_samples = 3, .num_tokens = 11}).message(),
                HasSubstr("max_queued_tokens is 100, 90 wait, and the request has 11"));
    EXPECT_THAT(space_.Reserve().status().message(), HasSubstr("max_queued_requests is 3"));
  }
  ExpectLoad({.num_requests = 2, .num_samples = 7, .num_tokens = 90});
}

TEST_F(QueuePlaceTest, SamplesCountBeforeTheRequestIsRead) {
  QueuePlace first = space_.Reserve(0, "", /*num_samples=*/7).value();
  ExpectLoad({.num_requests = 1, .num_samples = 7});
  EXPECT_THAT(space_.Reserve(4 * 60, "", 4).status().message(),
              HasSubstr("max_queued_samples is 10, 7 wait, and the request has 4"));
  ExpectLoad({.num_requests = 1, .num_samples = 7});
  EXPECT_EQ(first.Fill({.num_samples = 10, .num_tokens = 1}), absl::OkStatus()) << "the estimate does not count twice";
  ExpectLoad({.num_requests = 1, .num_samples = 10, .num_tokens = 1});
  {
    const QueuePlace unfilled = space_.Reserve(0, "other", 1).value();
    ExpectLoad({.num_requests = 2, .num_samples = 11, .num_tokens = 1});
  }
  ExpectLoad({.num_requests = 1, .num_samples = 10, .num_tokens = 1});
}

TEST_F(QueuePlaceTest, FourBytesCountAsATokenUntilTheTokensAreKnown) {
  QueuePlace first = space_.Reserve(/*num_bytes=*/4 * 60).value();
  ExpectLoad({.num_requests = 1, .num_tokens = 60});
  EXPECT_THAT(space_.Reserve(4 * 41).status().message(),
              HasSubstr("max_queued_tokens is 100, 60 wait, and the request has 41"));
  ExpectLoad({.num_requests = 1, .num_tokens = 60});
  EXPECT_EQ(first.Fill({.num_samples = 1, .num_tokens = 99}), absl::OkStatus());
  ExpectLoad({.num_requests = 1, .num_samples = 1, .num_tokens = 99});
}

TEST_F(QueuePlaceTest, ARequestThatIsTooLargeWaitsAlone) {
  {
    const QueuePlace large = Filled(11, 101);
    EXPECT_FALSE(space_.Reserve()->Fill({.num_samples = 1, .num_tokens = 1}).ok());
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
  ASSERT_EQ(low.Fill({.num_samples = 1, .num_tokens = 1, .priority = -kMaxPriority}), absl::OkStatus());
  ASSERT_EQ(high.Fill({.num_samples = 2, .num_tokens = 1, .priority = kMaxPriority}), absl::OkStatus());
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

TEST_F(QueuePlaceTest, ATenantBelowItsShareGetsAPlaceInAFullQueue) {
  QueueSpace space({.num_requests = 8, .num_samples = 100, .num_tokens = 100});
  std::vector<QueuePlace> places;
  const auto reserve = [&](const char* tenant) {
    absl::StatusOr<QueuePlace> place = space.Reserve(/*num_bytes=*/0, tenant);
    if (place.ok()) places.push_back(*std::move(place));
    return place.ok();
  };
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(reserve("flood"));
  EXPECT_FALSE(reserve("flood"));
  EXPECT_EQ(FurthestAboveShare(space), std::nullopt);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(reserve("other")) << i;
  EXPECT_FALSE(reserve("other")) << "it has half of the places";
  EXPECT_EQ(space.num_tenants(), 2);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(FurthestAboveShare(space), "flood");
    places.erase(places.begin());
  }
  EXPECT_EQ(FurthestAboveShare(space), std::nullopt);
  EXPECT_FALSE(reserve("flood"));
  EXPECT_FALSE(reserve("other"));
  EXPECT_TRUE(reserve("third"));
  places.clear();
  EXPECT_EQ(space.num_tenants(), 0);
}

TEST_F(QueuePlaceTest, SharesOfTheQueueFollowTheWeights) {
  QueueSpace space({.num_requests = 8, .num_samples = 100, .num_tokens = 100},
                   {.weights = TenantWeights::Load("heavy=3").value()});
  std::vector<QueuePlace> places;
  for (int i = 0; i < 8; ++i) places.push_back(space.Reserve(0, "light").value());
  for (int i = 0; i < 6; ++i) places.push_back(space.Reserve(0, "heavy").value());
  EXPECT_FALSE(space.Reserve(0, "heavy").ok());
}

TEST_F(QueuePlaceTest, TokensAndSamplesAreSharedToo) {
  QueuePlace flood = space_.Reserve(0, "flood").value(), other = space_.Reserve(0, "other").value();
  ASSERT_EQ(flood.Fill({.tenant = "flood", .num_samples = 10, .num_tokens = 100}), absl::OkStatus());
  ASSERT_EQ(other.Fill({.tenant = "other", .num_samples = 5, .num_tokens = 50}), absl::OkStatus());
  EXPECT_EQ(FurthestAboveShare(space_), "flood");
  other = space_.Reserve(0, "other").value();
  EXPECT_FALSE(other.Fill({.tenant = "other", .num_samples = 6}).ok());
  other = space_.Reserve(0, "other").value();
  EXPECT_FALSE(other.Fill({.tenant = "other", .num_tokens = 51}).ok());
}

TEST_F(QueuePlaceTest, ATenantThatCanGiveNothingLeavesItToTheNextOneAboveItsShare) {
  QueueSpace space({.num_requests = 6, .num_samples = 100, .num_tokens = 100});
  std::vector<QueuePlace> places;
  for (const char* tenant : {"a", "a", "a", "a", "a", "a", "b", "b", "b", "c"}) {
    places.push_back(space.Reserve(0, tenant).value());
  }
  EXPECT_EQ(FurthestAboveShare(space), "a");
  EXPECT_EQ(FurthestAboveShare(space, "a"), "b");
  places.pop_back();
  places.pop_back();  // b has no more than its share of two places
  EXPECT_EQ(FurthestAboveShare(space, "a"), std::nullopt);
}

// Else one message of 16 MiB would keep all other tenants out.
TEST_F(QueuePlaceTest, BesideARequestThatIsTooLargeOthersHaveTheirShares) {
  for (const bool is_filled : {false, true}) {
    QueuePlace large = space_.Reserve(/*num_bytes=*/4 * 1000, "large").value();
    if (is_filled) {
      ASSERT_EQ(large.Fill({.tenant = "large", .num_tokens = 1000}), absl::OkStatus());
    }
    EXPECT_FALSE(space_.Reserve(4, "large").ok());
    EXPECT_THAT(space_.Reserve(4 * 2000, "large").status().message(), HasSubstr("100 wait, and the request has 2000"));
    EXPECT_TRUE(space_.Reserve(4 * 50, "other").ok());
    EXPECT_FALSE(space_.Reserve(4 * 51, "other").ok()) << "it has half of the tokens";
  }
  ExpectLoad({});
}

TEST_F(QueuePlaceTest, InventedTenantsDoNotExceedTwiceTheBound) {
  QueueSpace space({.num_requests = 100, .num_samples = 1000, .num_tokens = 1000});
  std::vector<QueuePlace> places;
  for (int i = 0; i < 10'000; ++i) {
    absl::StatusOr<QueuePlace> place = space.Reserve(0, absl::StrCat("tenant ", i));
    if (place.ok()) places.push_back(*std::move(place));
  }
  EXPECT_EQ(places.size(), 100) << "each would have less than one place";
  for (int i = 0; i < 10'000; ++i) {
    absl::StatusOr<QueuePlace> place = space.Reserve(0, absl::StrCat("tenant ", i % 10));
    if (place.ok()) places.push_back(*std::move(place));
  }
  EXPECT_LE(places.size(), 200);
}

TEST_F(QueuePlaceTest, ATenantHoldsNoMoreTokensThanItMay) {
  QueueSpace space({.num_requests = 8, .num_samples = 100, .num_tokens = 100}, {.max_queued_tokens = 20});
  QueuePlace large = space.Reserve(0, "a").value(), small = space.Reserve(0, "a").value();
  ASSERT_EQ(large.Fill({.tenant = "a", .num_tokens = 30}), absl::OkStatus()) << "no other request of the tenant waits";
  const absl::Status refused = small.Fill({.tenant = "a", .num_tokens = 1});
  EXPECT_EQ(base::ReasonOf(refused), "TENANT_QUEUE_FULL");
  EXPECT_TRUE(base::IsPassing(refused));
  EXPECT_THAT(refused.message(), HasSubstr("max_tenant_queued_tokens is 20, 30 wait, and the request has 1"));
  QueuePlace other = space.Reserve(0, "b").value();
  EXPECT_EQ(other.Fill({.tenant = "b", .num_tokens = 20}), absl::OkStatus());
}

TEST_F(QueuePlaceTest, ThePlaceGoesToTheTenantOfTheParsedRequest) {
  QueuePlace place = space_.Reserve(/*num_bytes=*/40, "guessed").value();
  ASSERT_EQ(place.Fill({.tenant = "real", .num_samples = 1, .num_tokens = 5}), absl::OkStatus());
  EXPECT_EQ(space_.NumAhead(0, "real"), 1);
  EXPECT_EQ(space_.NumAhead(0, "guessed"), 0);
  EXPECT_EQ(space_.num_tenants(), 1);
  ExpectLoad({.num_requests = 1, .num_samples = 1, .num_tokens = 5});
}

TEST_F(QueuePlaceTest, AReturnedSampleIsNeverRefused) {
  QueuePlace first = Filled(10, 1);
  for (int i = 0; i < 10; ++i) first.BeginSample();
  const QueuePlace second = Filled(10, 100);
  first.ReturnSample();
  ExpectLoad({.num_requests = 2, .num_samples = 11, .num_tokens = 101});
  EXPECT_FALSE(space_.Reserve()->Fill({.num_samples = 1, .num_tokens = 1}).ok());
}

}  // namespace
}  // namespace foretoken::verifier
