// SPDX-License-Identifier: Apache-2.0
// The places for response formats. If this test fails, one tenant takes them all, or a place is lost.
#include "verifier_service/grammar/compile_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;

TEST(CompilePlaces, OneTenantTakesAtMostHalf) {
  CompilePlaces places(8);
  std::vector<CompilePlaces::Place> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(*places.Take("a"));
  const absl::Status refused = places.Take("a").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(refused), "GRAMMARS_FULL");
  EXPECT_TRUE(base::IsPassing(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("4 formats of this tenant"));
  for (int i = 0; i < 4; ++i) taken.push_back(*places.Take(absl::StrCat("b", i % 2)));
  EXPECT_THAT(std::string(places.Take("b0").status().message()), HasSubstr("8 formats wait"));
  taken.erase(taken.begin());
  EXPECT_TRUE(places.Take("b0").ok());
  EXPECT_TRUE(places.Take("a").ok());
}

// Two tenants may keep all places taken for as long as they like.
TEST(CompilePlaces, ATenantWithoutOneGetsOneBesideThoseThatTookAll) {
  CompilePlaces places(4);
  std::vector<CompilePlaces::Place> taken;
  for (const char* const tenant : {"a", "a", "b", "b", "c", "d", "e"}) taken.push_back(*places.Take(tenant));
  EXPECT_FALSE(places.Take("c").ok()) << "it has one";
  taken.push_back(*places.Take("f"));
  EXPECT_THAT(std::string(places.Take("g").status().message()), HasSubstr("8 formats wait"));
}

TEST(CompilePlaces, OnePlaceServesOneOfATenant) {
  CompilePlaces places(1);
  const auto taken = places.Take("a");
  EXPECT_TRUE(taken.ok());
  EXPECT_FALSE(places.Take("a").ok());
}

TEST(CompilePlaces, WithoutPlacesNobodyIsServed) { EXPECT_FALSE(CompilePlaces(0).Take("a").ok()); }

}  // namespace
}  // namespace foretoken::verifier
