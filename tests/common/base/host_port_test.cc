// SPDX-License-Identifier: Apache-2.0
// If this test fails, a service listens on another port than the one that it was given.
#include "common/base/host_port.h"

#include <gtest/gtest.h>

namespace foretoken::base {
namespace {

TEST(HostOf, IsAllBeforeThePort) {
  EXPECT_EQ(HostOf("localhost:50051"), "localhost");
  EXPECT_EQ(HostOf("localhost"), "localhost");
  EXPECT_EQ(HostOf("[::1]:50051"), "[::1]");
  EXPECT_EQ(HostOf("[::1]"), "[::1]");
  EXPECT_EQ(HostOf("::1"), "::1") << "without brackets it has no port";
  EXPECT_EQ(HostOf(":50051"), "");
  EXPECT_EQ(HostOf(""), "");
}

TEST(WithoutBrackets, LeavesAnAddressAsTheSystemWantsIt) {
  EXPECT_EQ(WithoutBrackets("[::1]"), "::1");
  EXPECT_EQ(WithoutBrackets("::1"), "::1");
  EXPECT_EQ(WithoutBrackets("localhost"), "localhost");
  EXPECT_EQ(WithoutBrackets(""), "");
}

TEST(PortOf, IsANumberOf16BitsBehindTheLastColon) {
  EXPECT_EQ(PortOf("localhost:50051"), 50051);
  EXPECT_EQ(PortOf("[::1]:0"), 0);
  EXPECT_EQ(PortOf("0.0.0.0:65535"), 65535);
  for (const char* text : {"", "localhost", "localhost:", "localhost:65536", "localhost:116507", "localhost:-1",
                           "localhost:+1", "localhost: 1", "localhost:1x", "localhost:99999999999999999999"}) {
    EXPECT_EQ(PortOf(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace foretoken::base
