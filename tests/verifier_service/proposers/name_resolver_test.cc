// SPDX-License-Identifier: Apache-2.0
// Resolving a proposer's name. If this test fails, the verifier finds no replica, or not all replicas, behind a name.
#include "verifier_service/proposers/name_resolver.h"

#include <arpa/inet.h>
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

TEST(ResolveName, OneReplicaWithAddressesOfBothFamiliesCountsOnce) {
  sockaddr_in ipv4[2] = {};
  sockaddr_in6 ipv6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  addrinfo answer[3] = {};
  for (int i = 0; i < 2; ++i) {
    ipv4[i] = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK + i)}};
    answer[2 * i] = {
        .ai_family = AF_INET, .ai_addrlen = sizeof(ipv4[i]), .ai_addr = reinterpret_cast<sockaddr*>(&ipv4[i])};
  }
  answer[1] = {.ai_family = AF_INET6, .ai_addrlen = sizeof(ipv6), .ai_addr = reinterpret_cast<sockaddr*>(&ipv6)};
  answer[0].ai_next = &answer[1];
  answer[1].ai_next = &answer[2];
  EXPECT_THAT(TargetsOf(answer[0], "7"), ElementsAre("ipv4:127.0.0.1:7", "ipv4:127.0.0.2:7"));
  EXPECT_THAT(TargetsOf(answer[1], "7"), ElementsAre("ipv6:[::1]:7"));
}

}  // namespace
}  // namespace foretoken::verifier
