// SPDX-License-Identifier: Apache-2.0
// The requests that the service refuses, and its error messages. If this test fails, a client gets a wrong error code,
// no reason or field name, or a bad request disturbs other requests.
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/error_details.h"
#include "tests/testing/unary_call.h"
#include "tests/verifier_service/api/generation_service_fixture.h"

namespace foretoken::verifier {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using testing::FindDetail;
using testing::ReasonOf;

TEST_F(GenerationServiceTest, RefusesBadRequestsWhileOthersGoOn) {
  Bystander bystander(*stub_, engine_, Request());
  const auto expect_refused = [&](const v1::GenerateRequest& request, const std::string& field) {
    const grpc::Status status = Generate(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_TRUE(absl::StartsWith(status.error_message(), field + ": ")) << status.error_message();
    bystander.ExpectToGoOn();
  };
  expect_refused(Request(""), "text");
  expect_refused(Request(std::string(10 << 20, 'x')), "text");
  std::string words;
  for (int i = 0; i < 4000; ++i) words += "word ";
  expect_refused(Request(words), "text");
  v1::GenerateRequest request;
  request.mutable_tokens()->add_ids(4096);
  expect_refused(request, "tokens.ids[0]");
  request = Request();
  request.mutable_sampling()->set_temperature(std::numeric_limits<float>::quiet_NaN());
  expect_refused(request, "sampling.temperature");
  request.mutable_sampling()->set_temperature(-1);
  expect_refused(request, "sampling.temperature");
  request = Request();
  request.mutable_response_format()->set_regex("a");
  expect_refused(request, "response_format");  // this service has no compiler of forms
  bystander.ExpectToEnd();
  EXPECT_EQ(engine_.num_requests(), 1);
  EXPECT_EQ(engine_.num_queued(), 0);
}

// Calls a method with bytes, like a client library that does not check strings.
grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, const std::string& bytes) {
  return testing::CallWithBytes(channel, "/foretoken.v1.GenerationService/" + method, bytes).status;
}

TEST_F(GenerationServiceTest, NamesTheFieldThatIsNotUtf8) {
  Bystander bystander(*stub_, engine_, Request());
  const std::string text_field = std::string("\x2a\x02\xff\xfe", 4);    // Generate: 5
  const std::string text_field_2 = std::string("\x12\x02\xff\xfe", 4);  // Tokenize: 2
  for (const auto& [method, bytes] : {std::pair("Generate", text_field), {"Tokenize", text_field_2}}) {
    const grpc::Status status = Call(channel_, method, bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(status.error_message(), "text: expected UTF-8, got another byte sequence") << method;
    bystander.ExpectToGoOn();
  }
  EXPECT_EQ(Call(channel_, "Generate", "\x07garbage").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  bystander.ExpectToEnd();
}

TEST_F(GenerationServiceTest, AFullQueueRefusesBeforeAnythingIsRead) {
  engine_.max_queued = 0;
  EXPECT_EQ(Generate(Request(std::string(10 << 20, 'x'))).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GenerationServiceTest, ErrorsHaveDetailsForPrograms) {
  v1::GenerateRequest request = Request();
  request.mutable_sampling()->set_repetition_penalty(1e-44f);
  grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = FindDetail<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->field_violations(0).field(), "sampling.repetition_penalty");
  EXPECT_EQ(ReasonOf(status), "INVALID_FIELD");
  engine_.max_queued = 0;
  status = Generate(Request());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto retry = FindDetail<google::rpc::RetryInfo>(status);
  ASSERT_TRUE(retry);
  EXPECT_EQ(retry->retry_delay().seconds(), 1);
}

// gRPC turns an error that does not fit the trailers into RESOURCE_EXHAUSTED.
TEST_F(GenerationServiceTest, LongForeignNamesDoNotChangeTheErrorsCode) {
  v1::GenerateRequest request = Request();
  request.set_model(std::string(256, '\n'));
  EXPECT_EQ(Generate(request).error_code(), grpc::StatusCode::NOT_FOUND);
  request.set_model(std::string(1 << 20, '\n'));
  EXPECT_EQ(Generate(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request = Request();
  request.set_expected_numerics_fingerprint(std::string(1024, '\n'));
  EXPECT_EQ(Generate(request).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  engine_.submit_status = absl::InternalError(std::string(100'000, '\n'));
  EXPECT_EQ(Generate(Request()).error_code(), grpc::StatusCode::INTERNAL);
}

TEST_F(GenerationServiceTest, ARequestThatWouldGrowInParsingIsRefusedByName) {
  std::string strings;  // two bytes each on the wire, and forty when parsed
  for (int i = 0; i < (1 << 20); ++i) strings.append("\x1a\x00", 2);
  const std::string length = {'\x80', '\x80', '\x80', '\x01'};  // 2 MiB
  const grpc::Status status = Call(channel_, "Generate", "\x5a" + length + strings);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "stopping.stop_strings: expected at most 16, got 1048576");
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Resize(4097, 1);
  v1::DetokenizeResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->Detokenize(&context, request, &response).error_message(),
            "token_ids: expected at most 4096, got 4097");
}

TEST_F(GenerationServiceTest, ADrainingServerRefuses) {
  Bystander bystander(*stub_, engine_, Request());
  engine_.is_draining = true;
  EXPECT_EQ(Generate(Request()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(calls_->WaitUntilIdle(absl::Milliseconds(1)));
  bystander.ExpectToEnd();
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
}

TEST_F(GenerationServiceTest, ARefusedRequestIsOneEventOfTheLog) {
  const testing::CapturedLog log;
  spdlog::set_level(spdlog::level::debug);
  const auto generate = [this](const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.AddMetadata("x-request-id", "from metadata");
    context.AddMetadata("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    v1::GenerateResponse response;
    const auto reader = stub_->Generate(&context, request);
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_FALSE(reader->Finish().ok());
  };
  v1::GenerateRequest invalid = Request();
  invalid.set_request_id("from message");
  invalid.set_tenant("team");
  invalid.mutable_sampling()->set_temperature(-1);
  generate(invalid);
  engine_.max_queued = 0;
  generate(Request());
  ASSERT_TRUE(calls_->WaitUntilIdle(kSoon));
  const std::string trace_id = "trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"";
  EXPECT_THAT(
      log.Lines(),
      ElementsAre(ContainsRegex(absl::StrCat("request refused: request_id=\"from message\" ", trace_id,
                                             " tenant=\"team\" code=\"INVALID_ARGUMENT\" reason=\"invalid_field\" "
                                             "error=\"sampling.temperature: .*\" total_ms=[0-9.]+$")),
                  ContainsRegex(absl::StrCat("request refused: request_id=\"from metadata\" ", trace_id,
                                             " tenant=\"\" code=\"RESOURCE_EXHAUSTED\" reason=\"queue_full\" "
                                             "error=\"full\" total_ms=[0-9.]+$"))));
}

TEST_F(GenerationServiceTest, ARefusalOfTheEngineIsTheCallsStatus) {
  engine_.submit_status = absl::InvalidArgumentError("prompt: too long");
  EXPECT_EQ(Generate(Request()).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GenerationServiceTest, AnErrorOfOneRequestEndsOnlyItsCall) {
  Bystander bystander(*stub_, engine_, Request());
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request());
  engine_.Fail(engine_.WaitForRequest(1).ticket, absl::InternalError("logits are not finite"));
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INTERNAL);
  bystander.ExpectToEnd();
  ASSERT_TRUE(calls_->WaitUntilIdle(kSoon));
  EXPECT_EQ(ReadMetric("foretoken_samples_finished_total,reason=error"), 1);
  EXPECT_EQ(ReadMetric("foretoken_samples_finished_total,reason=stop"), 1);
}

}  // namespace
}  // namespace foretoken::verifier
