// SPDX-License-Identifier: Apache-2.0
// The log lines of libraries. If this test fails, a stranger can fill the log, or lines have another form than ours.
#include "common/rpc/library_log.h"

#include "common/telemetry/line_limit.h"
#include "foretoken/v1/generation.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "gtest/gtest.h"
#include "tests/testing/captured_log.h"

namespace foretoken::rpc {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class LibraryLogTest : public ::testing::Test {
 protected:
  ~LibraryLogTest() override {
    gpr_set_log_function(nullptr);  // its own
    google::protobuf::SetLogHandler(protobufs_own_);
  }

  google::protobuf::LogHandler* const protobufs_own_ = google::protobuf::SetLogHandler(nullptr);
};

TEST_F(LibraryLogTest, TheLinesOfEachLibraryAreLimitedAndGoNowhereElse) {
  testing::CapturedLog log;
  ::testing::internal::CaptureStderr();
  TakeLibraryLogs();
  v1::GenerateRequest request;
  request.set_text("\xff");
  for (int i = 0; i < 100; ++i) request.SerializeAsString();  // protobuf says each time that this is not UTF-8
  EXPECT_THAT(log.Lines(), SizeIs(telemetry::LineLimit::kBurst));
  EXPECT_THAT(log.Lines(), Each(StartsWith("warning protobuf: \"")));
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // as gRPC does at its start
  for (int i = 0; i < 100; ++i) gpr_log(GPR_ERROR, "a failed handshake");
  EXPECT_THAT(log.Lines(), SizeIs(2 * telemetry::LineLimit::kBurst));
  EXPECT_EQ(log.Lines().back(), "warning gRPC: \"a failed handshake\"");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

}  // namespace
}  // namespace foretoken::rpc
