// SPDX-License-Identifier: Apache-2.0
// Values of metadata. If this test fails, a header that a client or a proxy has split reaches us in part.
#include "common/rpc/metadata.h"

#include <gtest/gtest.h>

namespace foretoken::rpc {
namespace {

TEST(MetadataValue, JoinsAllEntriesOfTheKeyInTheirOrder) {
  const std::multimap<grpc::string_ref, grpc::string_ref> metadata = {
      {"tracestate", "a=1"}, {"other", "x"}, {"tracestate", "b=2,c=3"}};
  EXPECT_EQ(MetadataValue(metadata, "tracestate"), "a=1,b=2,c=3");
  EXPECT_EQ(MetadataValue(metadata, "other"), "x");
  EXPECT_EQ(MetadataValue(metadata, "trace"), "");
}

}  // namespace
}  // namespace foretoken::rpc
