// SPDX-License-Identifier: Apache-2.0
// Gzip. If this test fails, a collector cannot read a batch, or a few bytes of a collector fill the memory.
#include "common/tracing/gzip.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace foretoken::tracing {
namespace {

TEST(Gzip, HoldsWhatWasPacked) {
  for (const std::string& plain : {std::string(), std::string("a"), std::string(1 << 20, 'x')}) {
    const std::string packed = Gzip(plain);
    EXPECT_TRUE(IsGzip(packed));
    EXPECT_EQ(Gunzip(packed, plain.size() + 1), plain);
    EXPECT_EQ(Gunzip(packed, plain.size()), plain);
  }
  EXPECT_FALSE(IsGzip(""));
  EXPECT_FALSE(IsGzip("\x1f"));
}

TEST(Gunzip, ReturnsNoMoreThanItMay) {
  EXPECT_EQ(Gunzip(Gzip(std::string(64 << 20, 'x')), 100), std::string(100, 'x'));
}

TEST(Gunzip, BrokenBytesHoldNothing) {
  const std::string packed = Gzip("a text");
  EXPECT_FALSE(Gunzip("", 100).has_value());
  EXPECT_FALSE(Gunzip("a text", 100).has_value());
  EXPECT_FALSE(Gunzip(packed.substr(0, 2), 100).has_value());
  EXPECT_FALSE(Gunzip(packed.substr(0, packed.size() - 1), 100).has_value());
  EXPECT_FALSE(Gunzip(absl::StrCat(packed.substr(0, 2), "a text"), 100).has_value());
}

}  // namespace
}  // namespace foretoken::tracing
