// SPDX-License-Identifier: Apache-2.0
// The answers of the service: outputs, prompts, tokenization, model information and metrics. If this test fails,
// clients lose or misread output, or a slow client delays others.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/verifier_service/api/generation_service_fixture.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

TEST_F(GenerationServiceTest, StreamsDeltasAndEndsAfterEverySample) {
  v1::GenerateRequest request = Request();
  request.set_request_id("mine");
  request.mutable_sampling()->set_n(2);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, request);
  const Ticket ticket = engine_.WaitForRequest().ticket;
  engine_.Say(ticket, 0, "a");
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.text(), "a");
  EXPECT_EQ(response.request_id(), "mine");
  engine_.Complete(ticket, 0);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.completion().seed(), 77);
  EXPECT_EQ(response.completion().numerics_fingerprint(), "n");
  engine_.Complete(ticket, 1, FinishReason::kLength);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.sample_index(), 1);
  EXPECT_EQ(response.completion().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
}

TEST_F(GenerationServiceTest, AnAnsweredCallHasLeftTheQueue) {
  engine_.max_queued = 1;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Generate(Request("")).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    request.set_text("def");
    v1::TokenizeResponse response;
    const grpc::Status status = stub_->Tokenize(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST_F(GenerationServiceTest, ASlowReaderDelaysNoOtherCallAndLosesNoOutput) {
  grpc::ClientContext slow_context;
  const auto slow = stub_->Generate(&slow_context, Request());
  const Ticket slow_ticket = engine_.WaitForRequest().ticket;
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request());
  const Ticket ticket = engine_.WaitForRequest(1).ticket;
  const std::string block(10000, 'x');
  constexpr int kNumBlocks = 2000;  // 20 MB, more than any flow-control window holds
  v1::GenerateResponse response;
  for (int i = 0; i < kNumBlocks; ++i) {
    engine_.Say(slow_ticket, 0, block);
    if (i % 100 != 0) continue;
    engine_.Say(ticket, 0, "y");
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.text(), "y");
  }
  engine_.Complete(slow_ticket, 0);
  engine_.Complete(ticket, 0);
  size_t num_bytes = 0;
  int num_messages = 0;
  for (; slow->Read(&response); ++num_messages) num_bytes += response.text().size();
  const grpc::Status status = slow->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(num_bytes, kNumBlocks * block.size());
  EXPECT_LT(num_messages, kNumBlocks);
}

TEST_F(GenerationServiceTest, EchoesThePromptsText) {
  v1::GenerateRequest request = Request();
  request.mutable_output()->set_echo(true);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, request);
  const GenerationRequest submitted = engine_.WaitForRequest();
  SampleOutput output;
  output.ticket = submitted.ticket;
  output.prompt =
      PromptEcho{.token_ids = std::make_shared<const std::vector<int32_t>>(submitted.prompt), .logprobs = {}};
  output.completion = SampleCompletion{};
  std::vector<SampleOutput> outputs;
  outputs.push_back(std::move(output));
  publisher_.Publish(std::move(outputs));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.prompt().text(), "def f():");
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_TRUE(response.has_completion());
}

TEST_F(GenerationServiceTest, PassesOnOnlyAValidTraceContext) {
  const std::string sound = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  for (const auto& [i, sent] : {std::pair(0, sound), {1, std::string("nonsense")}}) {
    grpc::ClientContext context;
    context.AddMetadata("traceparent", sent);
    context.AddMetadata("tracestate", "a=1");
    context.AddMetadata("tracestate", "b=2");
    const auto reader = stub_->Generate(&context, Request());
    const GenerationRequest request = engine_.WaitForRequest(i);
    EXPECT_EQ(request.traceparent, i == 0 ? sound : "");
    EXPECT_EQ(request.tracestate, i == 0 ? "a=1,b=2" : "");
    engine_.Complete(request.ticket, 0);
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
  }
}

TEST_F(GenerationServiceTest, TokenizesAndBack) {
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text("def main():\n    return 1\n");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(stub_->Tokenize(&context, request, &tokens).ok());
  std::string text;
  for (const std::string& bytes : tokens.token_bytes()) text += bytes;
  EXPECT_EQ(text, request.text());
  grpc::ClientContext back_context;
  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = tokens.token_ids();
  v1::DetokenizeResponse whole;
  ASSERT_TRUE(stub_->Detokenize(&back_context, back, &whole).ok());
  EXPECT_EQ(whole.text(), request.text());
  EXPECT_TRUE(std::ranges::equal(whole.token_bytes(), tokens.token_bytes()));
}

TEST_F(GenerationServiceTest, DetokenizeChecksIds) {
  grpc::ClientContext context;
  v1::DetokenizeRequest request;
  request.add_token_ids(1);
  request.add_token_ids(4096);
  v1::DetokenizeResponse response;
  const grpc::Status status = stub_->Detokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StartsWith(status.error_message(), "token_ids[1]: ")) << status.error_message();
}

TEST_F(GenerationServiceTest, DescribesTheServedModel) {
  grpc::ClientContext context;
  v1::GetModelInfoResponse info;
  ASSERT_TRUE(stub_->GetModelInfo(&context, v1::GetModelInfoRequest(), &info).ok());
  EXPECT_EQ(info.model(), "demo");
  EXPECT_EQ(info.architecture(), "LlamaForCausalLM");
  EXPECT_EQ(info.num_parameters(), 7);
  EXPECT_EQ(info.max_context_tokens(), 1024);
  EXPECT_THAT(info.end_token_ids(), ElementsAre(4092));
  EXPECT_FLOAT_EQ(info.default_sampling().temperature(), 0.5f);
  EXPECT_EQ(info.proposers(0).proposer(), "ngram");
  EXPECT_EQ(info.proposers(0).num_connected(), 2);
  EXPECT_FALSE(info.version().empty());
}

TEST_F(GenerationServiceTest, EveryMethodKnowsOnlyItsModel) {
  grpc::ClientContext context[3];
  v1::GetModelInfoRequest info;
  info.set_model("other");
  v1::GetModelInfoResponse info_response;
  EXPECT_EQ(stub_->GetModelInfo(&context[0], info, &info_response).error_code(), grpc::NOT_FOUND);
  v1::TokenizeRequest tokenize;
  tokenize.set_model("other");
  v1::TokenizeResponse tokenize_response;
  EXPECT_EQ(stub_->Tokenize(&context[1], tokenize, &tokenize_response).error_code(), grpc::NOT_FOUND);
  v1::DetokenizeRequest detokenize;
  detokenize.set_model("other");
  v1::DetokenizeResponse detokenize_response;
  EXPECT_EQ(stub_->Detokenize(&context[2], detokenize, &detokenize_response).error_code(), grpc::NOT_FOUND);
  v1::GenerateRequest generate = Request();
  generate.set_model("other");
  EXPECT_EQ(Generate(generate).error_code(), grpc::NOT_FOUND);
}

TEST_F(GenerationServiceTest, MeasuresTheLatenciesOfAClient) {
  Bystander bystander(*stub_, engine_, Request());
  bystander.ExpectToGoOn();
  bystander.ExpectToGoOn();
  bystander.ExpectToEnd();
  ASSERT_TRUE(calls_->WaitUntilIdle(kSoon));
  for (const char* name : {"foretoken_time_to_first_token_seconds", "foretoken_inter_token_seconds",
                           "foretoken_queue_wait_seconds", "foretoken_request_seconds"}) {
    EXPECT_EQ(ReadMetric(name), 1) << name;
  }
  EXPECT_EQ(ReadMetric("foretoken_samples_finished_total,reason=stop"), 1);
  EXPECT_EQ(ReadMetric("foretoken_samples_finished_total,reason=abort"), 0);
}

TEST_F(GenerationServiceTest, CountsCallsByMethodAndStatus) {
  grpc::ClientContext contexts[4];
  v1::GenerateResponse response;
  const auto cancelled = stub_->Generate(&contexts[0], Request());
  engine_.WaitForRequest(0);
  contexts[0].TryCancel();
  EXPECT_EQ(cancelled->Finish().error_code(), grpc::StatusCode::CANCELLED);
  contexts[1].set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  EXPECT_EQ(stub_->Generate(&contexts[1], Request())->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Generate(Request("")).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::GetModelInfoResponse info;
  EXPECT_TRUE(stub_->GetModelInfo(&contexts[2], v1::GetModelInfoRequest(), &info).ok());
  v1::AbortResponse aborted;
  EXPECT_FALSE(stub_->Abort(&contexts[3], v1::AbortRequest(), &aborted).ok());
  ASSERT_TRUE(calls_->WaitUntilIdle(kSoon));
  for (const char* labels :
       {"rpc=Generate,code=CANCELLED", "rpc=Generate,code=DEADLINE_EXCEEDED", "rpc=Generate,code=INVALID_ARGUMENT",
        "rpc=GetModelInfo,code=OK", "rpc=Abort,code=INVALID_ARGUMENT"}) {
    EXPECT_EQ(ReadMetric(absl::StrCat("foretoken_rpc_calls_total,", labels)), 1) << labels;
  }
  EXPECT_EQ(ReadMetric("foretoken_rpc_calls_total,rpc=Generate,code=OK"), 0)
      << "the page has the counter before the first call";
  EXPECT_EQ(ReadMetric("foretoken_request_seconds"), 0) << "counts only calls that end with OK";
}

}  // namespace
}  // namespace foretoken::verifier
