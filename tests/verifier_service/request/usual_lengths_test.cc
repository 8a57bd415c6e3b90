// SPDX-License-Identifier: Apache-2.0
// The usual lengths of tenants' outputs. If this test fails, a tenant is refused for the outputs of others, or names
// that clients invent take memory without a bound.
#include "verifier_service/request/usual_lengths.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace foretoken::verifier {
namespace {

TEST(UsualLengths, FollowTheLastSamples) {
  UsualLengths lengths;
  for (int i = 0; i < 200; ++i) lengths.Learn("a", 10, /*is_cut_short=*/false);
  EXPECT_NEAR(lengths.Of("a"), 10, 0.1);
  lengths.Learn("a", 0, /*is_cut_short=*/false);
  EXPECT_NEAR(lengths.Of("a"), 10, 0.1) << "a refused sample has no length";
}

// Every second one is cut short after half of its length, so what the others have says nothing of it.
TEST(UsualLengths, ASampleThatIsCutShortMakesTheOthersNoShorter) {
  UsualLengths lengths;
  for (int i = 0; i < 400; ++i) lengths.Learn("a", i % 2 == 0 ? 20 : 100, /*is_cut_short=*/i % 2 == 0);
  EXPECT_GE(lengths.Of("a"), 100);
  for (int i = 0; i < 100'000; ++i) lengths.Learn("a", 20, /*is_cut_short=*/true);
  EXPECT_GT(lengths.Of("a"), 1e6) << "no end is known";
}

TEST(UsualLengths, AreEachTenantsOwn) {
  UsualLengths lengths;
  EXPECT_EQ(lengths.Find("a"), nullptr);
  EXPECT_EQ(lengths.Of("a"), 64) << "a guess";
  for (int i = 0; i < 200; ++i) lengths.Learn("long", 400, /*is_cut_short=*/false);
  EXPECT_NEAR(lengths.Of("a"), 400, 1) << "as all others";
  lengths.Learn("a", 4, /*is_cut_short=*/false);
  EXPECT_NEAR(lengths.Find("a")->mean(), 200, 10) << "what others generate counts as one end";
  for (int i = 0; i < 30; ++i) lengths.Learn("a", 4, /*is_cut_short=*/false);
  EXPECT_NEAR(lengths.Of("a"), 4, 4);
  EXPECT_NEAR(lengths.Of("long"), 400, 1);
}

// A new tenant's first sample is cut short. Without an end it would be taken for endless.
TEST(UsualLengths, OfATenantWithoutAnEndAreLikeThoseOfOthers) {
  UsualLengths lengths;
  lengths.Learn("a", 10, /*is_cut_short=*/true);
  EXPECT_LT(lengths.Of("a"), 100);
}

TEST(UsualLengths, AreFoundWhereNobodyElseHasAnEnd) {
  UsualLengths lengths;
  for (int i = 0; i < 100'000; ++i) lengths.Learn("endless", 20, /*is_cut_short=*/true);
  for (int i = 0; i < 300; ++i) lengths.Learn("a", 5, /*is_cut_short=*/false);
  EXPECT_NEAR(lengths.Of("a"), 5, 0.1);
}

TEST(UsualLengths, OfTheTenantWhoseLastEndIsOldestAreForgotten) {
  UsualLengths lengths;
  const auto learn = [&](size_t tenant) { lengths.Learn(absl::StrCat(tenant), 5, /*is_cut_short=*/false); };
  for (size_t i = 0; i < UsualLengths::kMaxTenants; ++i) learn(i);
  learn(0);
  learn(UsualLengths::kMaxTenants);
  EXPECT_NE(lengths.Find("0"), nullptr);
  EXPECT_EQ(lengths.Find("1"), nullptr);
  EXPECT_NE(lengths.Find("2"), nullptr);
  EXPECT_NE(lengths.Find(absl::StrCat(UsualLengths::kMaxTenants)), nullptr);
}

}  // namespace
}  // namespace foretoken::verifier
