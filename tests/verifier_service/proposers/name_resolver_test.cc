// SPDX-License-Identifier: Apache-2.0
// Resolving a proposer's name. If this test fails, the verifier finds no replica, or not all replicas, behind a name.
#include "verifier_service/proposers/name_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ResolveName, FindsEveryAddressOfALocalName) {
  const absl::StatusOr<std::vector<std::string>> addresses = ResolveName("127.0.0.1:50052");
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  EXPECT_THAT(*addresses, ElementsAre("ipv4:127.0.0.1:50052"));
  EXPECT_THAT(ResolveName("[::1]:7").value_or(std::vector<std::string>{"none"}), ElementsAre("ipv6:[::1]:7"));
  EXPECT_EQ(ResolveName("nothing").status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status unknown = ResolveName("no name:1").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("no name:1"));
}

}  // namespace
}  // namespace foretoken::verifier
