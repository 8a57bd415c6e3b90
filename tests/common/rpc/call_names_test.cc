// SPDX-License-Identifier: Apache-2.0
// Names in a call's metadata. If this test fails, a gateway's names are lost, replace those of the message, or break
// what they go into.
#include "common/rpc/call_names.h"

#include <string>

#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

using ::testing::StartsWith;

TEST(CallNames, AreReadByTheirKeys) {
  const std::multimap<grpc::string_ref, grpc::string_ref> metadata = {
      {"x-request-id", "r"}, {"x-foretoken-tenant", "t"}, {"x-foretoken-priority", "7"}, {"x-other", "o"}};
  const CallNames names = NamesOf(metadata);
  EXPECT_EQ(names.request_id, "r");
  EXPECT_EQ(names.tenant, "t");
  EXPECT_EQ(names.priority, "7");
}

TEST(CallNames, FillEmptyFieldsOnly) {
  const CallNames names = {.request_id = "r", .tenant = "t", .priority = "-7"};
  v1::GenerateRequest request;
  ASSERT_EQ(FillIn(names, request), absl::OkStatus());
  EXPECT_EQ(request.request_id(), "r");
  EXPECT_EQ(request.tenant(), "t");
  EXPECT_EQ(request.priority(), -7);
  request.set_request_id("own");
  request.set_tenant("own tenant");
  request.set_priority(3);
  ASSERT_EQ(FillIn(names, request), absl::OkStatus());
  EXPECT_EQ(request.request_id(), "own");
  EXPECT_EQ(request.tenant(), "own tenant");
  EXPECT_EQ(request.priority(), 3);
}

TEST(CallNames, ThatAreOddAreRefusedWhereTheyCount) {
  const std::string long_name(257, 'x');
  const std::pair<CallNames, const char*> odd[] = {
      {{.request_id = long_name}, "x-request-id: expected at most 256 bytes, got 257"},
      {{.tenant = long_name}, "x-foretoken-tenant: expected at most 256 bytes, got 257"},
      {{.request_id = "a\xff"}, "x-request-id: expected printable ASCII"},
      {{.tenant = "a\x01"}, "x-foretoken-tenant: expected printable ASCII"},
      {{.priority = "high"}, "x-foretoken-priority: expected an integer, got \"high\""},
      {{.priority = "99999999999"}, "x-foretoken-priority: expected an integer"},
      {{.priority = "1,2"}, "x-foretoken-priority: expected an integer"},
  };
  for (const auto& [names, message] : odd) {
    v1::GenerateRequest request;
    const absl::Status status = FillIn(names, request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), StartsWith(message));
    request.set_request_id("own");
    request.set_tenant("own");
    request.set_priority(1);
    EXPECT_EQ(FillIn(names, request), absl::OkStatus()) << message;
  }
}

TEST(CallNames, TheTenantOfTheMessageCountsFirst) {
  EXPECT_EQ(TenantOf({.tenant = "t"}, "").value(), "t");
  EXPECT_EQ(TenantOf({.tenant = "t"}, "own").value(), "own");
  EXPECT_EQ(TenantOf({}, "").value(), "");
  EXPECT_EQ(TenantOf({.tenant = "\x7f"}, "").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace foretoken::rpc
