// SPDX-License-Identifier: Apache-2.0
// Weights of tenants. If this test fails, an operator's weights are read wrongly, or a mistake in them stays unnoticed.
#include "verifier_service/request/tenant_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;

TEST(TenantWeights, AListGivesWeightsAndOthersWeighOne) {
  const TenantWeights weights = TenantWeights::Load("a=3; b=0.5;c=d=2;=4;").value();
  EXPECT_EQ(weights.Of("a"), 3);
  EXPECT_EQ(weights.Of("b"), 0.5);
  EXPECT_EQ(weights.Of("c=d"), 2);
  EXPECT_EQ(weights.Of(""), 4) << "the requests that name no tenant";
  EXPECT_EQ(weights.Of("other"), 1);
  EXPECT_EQ(TenantWeights::Load("").value().Of("a"), 1);
}

TEST(TenantWeights, AFileHasOneWeightPerLine) {
  const testing::TempDir directory;
  const std::string path = directory.Write("weights", "# of the search team\nsearch=3\n\na;b=2\r\n");
  const TenantWeights weights = TenantWeights::Load(path).value();
  EXPECT_EQ(weights.Of("search"), 3);
  EXPECT_EQ(weights.Of("a;b"), 2);
  EXPECT_EQ(weights.Of("# of the search team"), 1);
  EXPECT_THAT(TenantWeights::Load(directory.path() + "/none").status().message(), HasSubstr("/none"));
}

TEST(TenantWeights, AMistakeIsNamed) {
  const auto error = [](const char* text) { return std::string(TenantWeights::Load(text).status().message()); };
  for (const char* wrong : {"a=", "a=x", "a=0", "a=-1", "a=nan", "a=inf", "a=1001", "a=0.0001"}) {
    EXPECT_EQ(error(wrong), absl::StrCat("expected NAME=WEIGHT with a weight from 0.001 to 1000, got \"", wrong, "\""));
  }
  EXPECT_THAT(error("a=1;b"), HasSubstr("got \"b\""));
  EXPECT_EQ(error("a=1;a=2"), "expected one weight for each tenant, got two for \"a\"");
}

}  // namespace
}  // namespace foretoken::verifier
