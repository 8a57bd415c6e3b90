// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

TEST(Status, KeepsCodeAndMessageBothWays) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(ToGrpc(status).error_code(), code);
    EXPECT_EQ(ToGrpc(status).error_message(), "why");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
  }
}

TEST(Status, OkStaysOk) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

TEST(InvalidField, NamesTheField) {
  EXPECT_EQ(InvalidField("sampling.top_p", "got 2"), absl::InvalidArgumentError("sampling.top_p: got 2"));
}

}  // namespace
}  // namespace foretoken::rpc
