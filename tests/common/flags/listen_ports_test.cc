// SPDX-License-Identifier: Apache-2.0
// Flags with one port. If this test fails, a service loads its model for minutes before it finds out that two of its
// flags name one port, or it refuses flags that go together.
#include "common/flags/listen_ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace foretoken::flags {
namespace {

bool GoTogether(const std::string& listen, const std::string& metrics) {
  return CheckPortsDiffer({{"listen", listen}, {"metrics_listen", metrics}}).ok();
}

TEST(CheckPortsDiffer, RefusesOnePortOfOneHostOrOfAllAddresses) {
  EXPECT_FALSE(GoTogether("127.0.0.1:9100", "127.0.0.1:9100"));
  for (const char* all : {"0.0.0.0:9100", "[::]:9100", ":9100"}) {
    EXPECT_FALSE(GoTogether(all, "127.0.0.1:9100")) << all;
    EXPECT_FALSE(GoTogether("[::1]:9100", all)) << all;
    EXPECT_FALSE(GoTogether(all, "0.0.0.0:9100")) << all;
  }
}

TEST(CheckPortsDiffer, TakesOtherPortsOtherHostsAndFreePorts) {
  EXPECT_TRUE(GoTogether("0.0.0.0:9100", "0.0.0.0:9101"));
  EXPECT_TRUE(GoTogether("127.0.0.1:9100", "10.0.0.5:9100"));
  EXPECT_TRUE(GoTogether("0.0.0.0:0", "0.0.0.0:0"));
  EXPECT_TRUE(GoTogether("0.0.0.0:9100", ""));
  EXPECT_TRUE(GoTogether("", ""));
}

TEST(CheckPortsDiffer, NamesBothFlags) {
  EXPECT_EQ(CheckPortsDiffer({{"listen", "a:1"}, {"health_listen", "a:2"}, {"metrics_listen", "0.0.0.0:2"}}).message(),
            "--metrics_listen: expected another port than that of --health_listen=a:2, got \"0.0.0.0:2\"");
}

}  // namespace
}  // namespace foretoken::flags
