// SPDX-License-Identifier: Apache-2.0
// Errors on the wire. If this test fails, a client gets a wrong code, no reason, or another error because the details
// are too large.
#include "common/rpc/status.h"

#include <string>

#include "common/base/error_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/error_details.h"

namespace foretoken::rpc {
namespace {

using testing::FindDetail;
using testing::ReasonOf;

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

TEST(Status, DetailsGiveAReasonForPrograms) {
  const grpc::Status status = ToGrpc(base::WithReason(absl::NotFoundError("no such model"), "NO_MODEL"));
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), 5);
  EXPECT_EQ(details.message(), "no such model");
  const auto info = FindDetail<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->reason(), "NO_MODEL");
  EXPECT_EQ(info->domain(), "foretoken");
  EXPECT_FALSE(FindDetail<google::rpc::BadRequest>(status));
  EXPECT_FALSE(FindDetail<google::rpc::RetryInfo>(status));
}

TEST(Status, DetailsNameTheField) {
  const absl::Status status = InvalidField("sampling.top_p", "got 2");
  EXPECT_EQ(status.message(), "sampling.top_p: got 2");
  const auto bad = FindDetail<google::rpc::BadRequest>(ToGrpc(status));
  ASSERT_TRUE(bad);
  ASSERT_EQ(bad->field_violations_size(), 1);
  EXPECT_EQ(bad->field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(bad->field_violations(0).description(), "got 2");
  EXPECT_EQ(ReasonOf(ToGrpc(status)), "INVALID_FIELD");
}

TEST(Status, DetailsGiveTheTimeOfARetry) {
  for (const absl::Status& status :
       {base::Passing(absl::ResourceExhaustedError("full")), absl::UnavailableError("draining")}) {
    const auto retry = FindDetail<google::rpc::RetryInfo>(ToGrpc(status));
    ASSERT_TRUE(retry) << status;
    EXPECT_EQ(retry->retry_delay().seconds(), absl::ToInt64Seconds(kRetryDelay));
  }
}

TEST(Status, AnErrorThatARetryCannotCureGivesNoTime) {
  for (const absl::Status& status :
       {absl::ResourceExhaustedError("the output is not read"), base::Passing(absl::InternalError("broken"))}) {
    EXPECT_FALSE(FindDetail<google::rpc::RetryInfo>(ToGrpc(status))) << status;
  }
}

// In the worst case every byte of the message is percent-encoded, and the details are in base64.
TEST(Status, AnErrorFitsTheTrailersThatAClientTakes) {
  std::string text;
  while (text.size() < 100'000) text += "\xc3\xbc";
  const grpc::Status status = ToGrpc(InvalidField(std::string(200, 'f'), text));
  EXPECT_LE(status.error_message().size(), kMaxErrorBytes);
  EXPECT_EQ(status.error_message().substr(status.error_message().size() - 3), "...");
  EXPECT_LT(3 * status.error_message().size() + status.error_details().size() * 4 / 3, 4096);
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));  // UTF-8 to the end
}

// Libraries quote single bytes of what they refuse.
TEST(ToGrpc, AMessageOfAnyBytesLeavesReadableDetails) {
  const grpc::Status status = ToGrpc(InvalidField("response_format.ebnf", "Unexpected character: \xc3"));
  EXPECT_EQ(status.error_message(), "response_format.ebnf: Unexpected character: \ufffd");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.message(), status.error_message());
}

// A server of other services answers so, with no word.
TEST(FromGrpc, AnUnknownMethodIsNamed) {
  const absl::Status status = FromGrpc(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""));
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(status.message(), ::testing::HasSubstr("no such method"));
  EXPECT_EQ(FromGrpc(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "why")).message(), "why");
}

}  // namespace
}  // namespace foretoken::rpc
