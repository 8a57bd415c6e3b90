// SPDX-License-Identifier: Apache-2.0
// If this test fails, a client loses the end of an answer when its connection becomes too old, or waits for the end of
// every answer.
#include "common/rpc/connection_ages.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

ConnectionAges::Clock::time_point At(double seconds) {
  return ConnectionAges::Clock::time_point(absl::ToChronoNanoseconds(absl::Seconds(1000 + seconds)));
}

TEST(ConnectionAges, AnOldConnectionMayCloseWithItsLastCall) {
  ConnectionAges ages(absl::Seconds(100));
  ages.BeginCall("a", At(0));
  EXPECT_FALSE(ages.EndCall("a", At(80)));
  ages.BeginCall("a", At(81));
  ages.BeginCall("a", At(82));
  EXPECT_FALSE(ages.EndCall("a", At(95))) << "another call is on it";
  EXPECT_TRUE(ages.EndCall("a", At(96)));
  ages.BeginCall("a", At(97));
  EXPECT_TRUE(ages.EndCall("a", At(500))) << "as long as it has a call it stays open";
}

TEST(ConnectionAges, APortThatIsUsedAgainIsAnotherConnection) {
  ConnectionAges ages(absl::Seconds(100));
  ages.BeginCall("a", At(0));
  ages.BeginCall("b", At(0));
  EXPECT_FALSE(ages.EndCall("a", At(1)));
  ages.BeginCall("a", At(120));
  EXPECT_FALSE(ages.EndCall("a", At(121)));
  EXPECT_TRUE(ages.EndCall("b", At(121)));
}

TEST(ConnectionAges, WithoutALimitNoConnectionCloses) {
  ConnectionAges ages(std::nullopt);
  ages.BeginCall("a", At(0));
  EXPECT_FALSE(ages.EndCall("a", At(1e6)));
  EXPECT_EQ(ages.num_connections(), 0);
}

TEST(ConnectionAges, ConnectionsThatAreOverAreForgotten) {
  ConnectionAges ages(absl::Seconds(100));
  ages.BeginCall("long", At(0));
  for (int i = 0; i < 10'000; ++i) {
    ages.BeginCall(absl::StrCat(i), At(i));
    ages.EndCall(absl::StrCat(i), At(i));
  }
  EXPECT_LE(ages.num_connections(), 300u);
  EXPECT_TRUE(ages.EndCall("long", At(10'000)));
}

TEST(ConnectionAges, ItRemembersABoundedNumberOfIdleConnections) {
  ConnectionAges ages(absl::Seconds(100));
  ages.BeginCall("busy", At(0));
  size_t most = 0;
  for (int i = 0; i < 200'000; ++i) {
    ages.BeginCall(absl::StrCat(i), At(1));
    ages.EndCall(absl::StrCat(i), At(1));
    most = std::max(most, ages.num_connections());
  }
  EXPECT_LE(most, 65'537u);
  EXPECT_TRUE(ages.EndCall("busy", At(99)));
}

}  // namespace
}  // namespace foretoken::rpc
