// SPDX-License-Identifier: Apache-2.0
// Errors on the wire. If this test fails, a client gets a wrong code, no reason, or another error because the details
// are too large.
#include "common/rpc/status.h"

#include <optional>
#include <string>

#include "common/base/error_text.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
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

google::rpc::Status DetailsOf(const absl::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(ToGrpc(status).error_details()));
  return details;
}

template <typename Detail>
std::optional<Detail> Find(const google::rpc::Status& details) {
  for (const google::protobuf::Any& any : details.details()) {
    if (Detail detail; any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

TEST(Status, DetailsGiveAReasonForPrograms) {
  const google::rpc::Status details = DetailsOf(base::WithReason(absl::NotFoundError("no such model"), "NO_MODEL"));
  EXPECT_EQ(details.code(), 5);
  EXPECT_EQ(details.message(), "no such model");
  const auto info = Find<google::rpc::ErrorInfo>(details);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->reason(), "NO_MODEL");
  EXPECT_EQ(info->domain(), "foretoken");
  EXPECT_FALSE(Find<google::rpc::BadRequest>(details));
  EXPECT_FALSE(Find<google::rpc::RetryInfo>(details));
}

TEST(Status, DetailsNameTheField) {
  const absl::Status status = InvalidField("sampling.top_p", "got 2");
  EXPECT_EQ(status.message(), "sampling.top_p: got 2");
  const google::rpc::Status details = DetailsOf(status);
  const auto bad = Find<google::rpc::BadRequest>(details);
  ASSERT_TRUE(bad);
  ASSERT_EQ(bad->field_violations_size(), 1);
  EXPECT_EQ(bad->field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(bad->field_violations(0).description(), "got 2");
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(details)->reason(), "INVALID_FIELD");
}

TEST(Status, DetailsGiveTheTimeOfARetry) {
  for (const absl::Status& status :
       {base::Passing(absl::ResourceExhaustedError("full")), absl::UnavailableError("draining")}) {
    const auto retry = Find<google::rpc::RetryInfo>(DetailsOf(status));
    ASSERT_TRUE(retry) << status;
    EXPECT_EQ(retry->retry_delay().seconds(), absl::ToInt64Seconds(kRetryDelay));
  }
}

TEST(Status, AnErrorThatARetryCannotCureGivesNoTime) {
  for (const absl::Status& status :
       {absl::ResourceExhaustedError("the output is not read"), base::Passing(absl::InternalError("broken"))}) {
    EXPECT_FALSE(Find<google::rpc::RetryInfo>(DetailsOf(status))) << status;
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

}  // namespace
}  // namespace foretoken::rpc
