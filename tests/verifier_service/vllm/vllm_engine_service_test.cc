// SPDX-License-Identifier: Apache-2.0
// The service of vLLM's contract with a scripted engine behind it. If this test fails, gateways that know vLLM get
// wrong answers, wrong codes or none, or a client harms the server by a message of this contract.
#include "verifier_service/vllm/vllm_engine_service.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/testing/error_details.h"
#include "tests/testing/unary_call.h"
#include "tests/verifier_service/api/generation_service_fixture.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The calls of the fixture, by a second service.
class VllmEngineServiceTest : public GenerationServiceTest {
 protected:
  explicit VllmEngineServiceTest(const UnreadLimits& unread = {}) : GenerationServiceTest(/*max_lookups=*/16, unread) {
    vllm_ = std::make_unique<VllmEngineService>(
        VllmEngineServiceParts{.calls = calls_.get(),
                               .model_type = "llama",
                               .stats =
                                   [] {
                                     EngineStats stats;
                                     stats.num_running = 3;
                                     return stats;
                                   },
                               .is_healthy = [this] { return is_healthy_.load(); },
                               .max_running_samples = 16,
                               .tokenizer = TokenizerArchive{.bytes = std::string(150'000, 'z'), .sha256 = "digest"}});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("localhost:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(vllm_.get());
    vllm_server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // keeps windows small, so that unread output waits at the server
    vllm_channel_ =
        grpc::CreateCustomChannel(absl::StrCat("localhost:", port), grpc::InsecureChannelCredentials(), arguments);
    vllm_stub_ = engine_api::VllmEngine::NewStub(vllm_channel_);
  }
  ~VllmEngineServiceTest() override {
    vllm_server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  }

  static engine_api::GenerateRequest Prompt(const std::string& id = "", bool streams = true) {
    engine_api::GenerateRequest request;
    request.set_request_id(id);
    request.set_stream(streams);
    for (const uint32_t token : {5, 6, 7}) request.mutable_tokenized()->add_input_ids(token);
    return request;
  }
  // The status of a request that is refused.
  grpc::Status Refusal(const engine_api::GenerateRequest& request) {
    grpc::ClientContext context;
    const auto reader = vllm_stub_->Generate(&context, request);
    engine_api::GenerateResponse response;
    EXPECT_FALSE(reader->Read(&response));
    return reader->Finish();
  }
  grpc::Status Abort(const std::vector<std::string>& ids, grpc::ClientContext& context) {
    engine_api::AbortRequest request;
    for (const std::string& id : ids) request.add_request_ids(id);
    engine_api::AbortResponse response;
    return vllm_stub_->Abort(&context, request, &response);
  }
  grpc::Status Abort(const std::vector<std::string>& ids) {
    grpc::ClientContext context;
    return Abort(ids, context);
  }

  std::atomic<bool> is_healthy_{true};
  std::unique_ptr<VllmEngineService> vllm_;
  std::unique_ptr<grpc::Server> vllm_server_;
  std::shared_ptr<grpc::Channel> vllm_channel_;
  std::unique_ptr<engine_api::VllmEngine::Stub> vllm_stub_;
};

TEST_F(VllmEngineServiceTest, StreamsChunksAndEndsEachSampleWithComplete) {
  engine_api::GenerateRequest request = Prompt("one");
  request.mutable_sampling_params()->set_n(2);
  grpc::ClientContext context;
  const auto reader = vllm_stub_->Generate(&context, request);
  const GenerationRequest received = engine_.WaitForRequest();
  EXPECT_EQ(received.request_id, "one");
  EXPECT_TRUE(received.is_streamed);
  EXPECT_THAT(received.prompt, ElementsAre(5, 6, 7));
  EXPECT_EQ(received.sampling.temperature, 1) << "not the model's own default";
  engine_.Say(received.ticket, 0, "a");
  engine_api::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_THAT(response.chunk().token_ids(), ElementsAre(1));
  EXPECT_EQ(response.chunk().prompt_tokens(), 3);
  engine_.Complete(received.ticket, 1);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.chunk().index(), 1);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.complete().index(), 1);
  EXPECT_EQ(response.complete().finish_reason(), "stop");
  engine_.Complete(received.ticket, 0, FinishReason::kLength);
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.complete().index(), 0);
  EXPECT_EQ(response.complete().finish_reason(), "length");
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(VllmEngineServiceTest, AWholeAnswerIsHeldAndCountsAsUnread) {
  grpc::ClientContext context;
  const auto reader = vllm_stub_->Generate(&context, Prompt("", false));
  EXPECT_FALSE(engine_.WaitForRequest().is_streamed);
  const Ticket ticket = engine_.WaitForRequest().ticket;
  engine_.Say(ticket, 0, "a");
  EXPECT_TRUE(Comes([&] { return calls_->unread().totals().num_bytes > 0; }));
  engine_.Say(ticket, 0, "b");
  engine_.Complete(ticket, 0);
  engine_api::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_THAT(response.complete().output_ids(), ElementsAre(1, 1));
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
  EXPECT_EQ(calls_->unread().totals().num_bytes, 0);
}

// Every sample's message repeats the prompt's log-probabilities. A client that asks for many samples and does not read
// must not make the server hold a copy for each.
TEST_F(VllmEngineServiceTest, MessagesThatRepeatThePromptAreMadeOneAtATime) {
  constexpr int kNumSamples = 32;
  for (const bool streams : {false, true}) {
    engine_api::GenerateRequest request = Prompt("", streams);
    request.mutable_sampling_params()->set_n(kNumSamples);
    request.mutable_sampling_params()->set_prompt_logprobs(5);
    grpc::ClientContext context;
    const auto reader = vllm_stub_->Generate(&context, request);
    const Ticket ticket = engine_.WaitForRequest(streams ? 1 : 0).ticket;
    engine_.SayPrompt(ticket, /*num_tokens=*/10'000, /*num_top=*/5);
    for (int i = 0; i < kNumSamples; ++i) engine_.Complete(ticket, i);
    int num_prompts = 0;
    engine_api::GenerateResponse response;
    while (reader->Read(&response)) {
      const bool has_prompt = response.chunk().has_input_logprobs() || response.complete().has_input_logprobs();
      num_prompts += has_prompt ? 1 : 0;
      if (!has_prompt) continue;
      const auto num_bytes = static_cast<int64_t>(response.ByteSizeLong());
      EXPECT_GT(num_bytes, 300'000);
      EXPECT_LT(calls_->unread().totals().num_bytes, 6 * num_bytes);
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(num_prompts, kNumSamples);
  }
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
  EXPECT_EQ(calls_->unread().totals().num_bytes, 0);
}

TEST_F(VllmEngineServiceTest, CancellingACallEndsItsRequest) {
  grpc::ClientContext context;
  const auto reader = vllm_stub_->Generate(&context, Prompt());
  const Ticket ticket = engine_.WaitForRequest().ticket;
  context.TryCancel();
  EXPECT_TRUE(engine_.WaitForAbort(ticket));
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
}

TEST_F(VllmEngineServiceTest, AbortFindsTheRequestsOfItsTenantByWhicheverServiceTheyCame) {
  grpc::ClientContext own, foreign, ours;
  foreign.AddMetadata("x-foretoken-tenant", "b");
  const auto first = vllm_stub_->Generate(&own, Prompt("id"));
  const Ticket own_ticket = engine_.WaitForRequest(0).ticket;
  const auto second = vllm_stub_->Generate(&foreign, Prompt("id"));
  const Ticket foreign_ticket = engine_.WaitForRequest(1).ticket;
  const auto third = stub_->Generate(&ours, Named("", "ours"));
  const Ticket our_ticket = engine_.WaitForRequest(2).ticket;
  EXPECT_TRUE(Abort({"absent", "id", "ours"}).ok());
  EXPECT_TRUE(engine_.WaitForAbort(own_ticket));
  EXPECT_TRUE(engine_.WaitForAbort(our_ticket));
  EXPECT_FALSE(engine_.was_aborted(foreign_ticket));
  grpc::ClientContext of_b;
  of_b.AddMetadata("x-foretoken-tenant", "b");
  EXPECT_TRUE(Abort({"id"}, of_b).ok());
  EXPECT_TRUE(engine_.WaitForAbort(foreign_ticket));
  calls_->FailAll(absl::UnavailableError("the test ends"));
}

TEST_F(VllmEngineServiceTest, AbortTakesManyIdsButNotAnyNumber) {
  EXPECT_TRUE(Abort({}).ok());
  EXPECT_TRUE(Abort(std::vector<std::string>(10'000, "absent")).ok());
  EXPECT_EQ(Abort(std::vector<std::string>(20'000, "absent")).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(engine_.num_aborts(), 0);
  const grpc::Status empty = Abort({"a", ""});
  EXPECT_EQ(empty.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(empty.error_message(), StartsWith("request_ids[1]: "));
}

TEST_F(VllmEngineServiceTest, ErrorsNameTheContractsFields) {
  engine_api::GenerateRequest request = Prompt();
  request.mutable_tokenized()->add_input_ids(5000);
  grpc::Status status = Refusal(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("tokenized.input_ids[3]: "));
  EXPECT_EQ(testing::ReasonOf(status), "INVALID_FIELD");
  EXPECT_EQ(testing::FindDetail<google::rpc::BadRequest>(status)->field_violations(0).field(),
            "tokenized.input_ids[3]");
  const std::pair<std::function<void(engine_api::SamplingParams&)>, const char*> bad[] = {
      {[](auto& params) { params.set_n(4'000'000'000); }, "sampling_params.n: expected at most 64"},
      {[](auto& params) { params.set_temperature(-1); }, "sampling_params.temperature: expected 0 to 100"},
      {[](auto& params) { params.set_top_p(2); }, "sampling_params.top_p: "},
      {[](auto& params) { params.add_stop(""); }, "sampling_params.stop[0]: "},
      {[](auto& params) { params.add_stop_token_ids(4'000'000'000); }, "sampling_params.stop_token_ids[0]: "},
      {[](auto& params) { params.set_logprobs(21); }, "sampling_params.logprobs: expected at most 20"},
      {[](auto& params) { params.set_max_tokens(0); }, "sampling_params.max_tokens: "},
      {[](auto& params) { (*params.mutable_logit_bias())[-1] = 1; }, "sampling_params.logit_bias[-1]: "},
  };
  for (const auto& [spoil, message] : bad) {
    request = Prompt();
    spoil(*request.mutable_sampling_params());
    status = Refusal(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << message;
    EXPECT_THAT(status.error_message(), StartsWith(message));
  }
  EXPECT_EQ(engine_.num_requests(), 0);
}

TEST_F(VllmEngineServiceTest, SurvivesForeignBytes) {
  constexpr char kGenerate[] = "/vllm.grpc.engine.VllmEngine/Generate";
  const std::pair<std::string, const char*> messages[] = {
      {"\x07garbage", "expected a vllm.grpc.engine.GenerateRequest"},
      {std::string("\x0a\x01\xff", 3), "request_id: expected UTF-8"},
      {"\x1a\x02\xff\xff", "text: expected UTF-8"},
      {std::string(), "input: "},
      {std::string("\xfa\x07\xff\xff\x07", 5) + std::string(131'071, 'x'), "bytes of unknown fields"},
      {std::string("\x3a\x00\x1a\x01x", 5), "mm_inputs: "},
  };
  for (const auto& [bytes, message] : messages) {
    const grpc::Status status = testing::CallWithBytes(vllm_channel_, kGenerate, bytes).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << message;
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }
  for (const char* method : {"Abort", "GetLoads", "HealthCheck", "GetModelInfo", "GetServerInfo", "GetTokenizer"}) {
    const auto result =
        testing::CallWithBytes(vllm_channel_, absl::StrCat("/vllm.grpc.engine.VllmEngine/", method), "\x07garbage");
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
  }
}

TEST_F(VllmEngineServiceTest, OverloadAndDrainHaveTheCodesThatGatewaysKnow) {
  engine_.max_queued = 0;
  EXPECT_EQ(Refusal(Prompt()).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);  // HTTP 429
  engine_.max_queued = 8;
  engine_.is_draining = true;
  EXPECT_EQ(Refusal(Prompt()).error_code(), grpc::StatusCode::UNAVAILABLE);  // HTTP 503
}

TEST_F(VllmEngineServiceTest, UnknownMethodsAndServicesAreUnimplementedAndCountNothing) {
  for (const char* method :
       {"/vllm.grpc.engine.VllmEngine/Embed", "/vllm.grpc.engine.VllmEngine/SubscribeKvEvents",
        "/vllm.grpc.engine.VllmEngine/FlushCache", "/sglang.grpc.scheduler.SglangScheduler/HealthCheck"}) {
    EXPECT_EQ(testing::CallWithBytes(vllm_channel_, method, "").status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  for (const prometheus::MetricFamily& family : registry_.Collect()) {
    if (family.name != "foretoken_rpc_calls_total") continue;
    for (const prometheus::ClientMetric& metric : family.metric) EXPECT_EQ(metric.counter.value, 0);
  }
}

TEST_F(VllmEngineServiceTest, CountsItsCallsBesideOurs) {
  EXPECT_EQ(ReadMetric("foretoken_rpc_calls_total,rpc=GetLoads,code=OK,api=vllm"), 0) << "a rate needs a first value";
  Refusal(engine_api::GenerateRequest());
  EXPECT_EQ(ReadMetric("foretoken_rpc_calls_total,rpc=Generate,code=INVALID_ARGUMENT,api=vllm"), 1);
  EXPECT_EQ(ReadMetric("foretoken_refusals_total,rpc=Generate,reason=invalid_field,api=vllm"), 1);
  EXPECT_EQ(ReadMetric("foretoken_rpc_calls_total,rpc=Generate,code=OK"), 0);
}

TEST_F(VllmEngineServiceTest, TellsItsHealth) {
  const auto check = [this] {
    grpc::ClientContext context;
    engine_api::HealthCheckResponse response;
    EXPECT_TRUE(vllm_stub_->HealthCheck(&context, {}, &response).ok());
    EXPECT_NE(response.message(), "");
    return response.healthy();
  };
  EXPECT_TRUE(check());
  is_healthy_ = false;
  EXPECT_FALSE(check());
}

TEST_F(VllmEngineServiceTest, DescribesModelServerAndLoad) {
  grpc::ClientContext for_model, for_server, for_loads, for_other;
  engine_api::GetModelInfoResponse model;
  ASSERT_TRUE(vllm_stub_->GetModelInfo(&for_model, {}, &model).ok());
  EXPECT_EQ(model.served_model_name(), "demo");
  EXPECT_EQ(model.model_path(), "demo");
  EXPECT_EQ(model.tokenizer_path(), "");
  EXPECT_TRUE(model.is_generation());
  EXPECT_EQ(model.max_context_length(), 1024);
  EXPECT_EQ(model.max_req_input_len(), 1023);
  EXPECT_EQ(model.vocab_size(), 4096);
  EXPECT_EQ(model.model_type(), "llama");
  EXPECT_THAT(model.architectures(), ElementsAre("LlamaForCausalLM"));
  EXPECT_THAT(model.eos_token_ids(), ElementsAre(4092));
  EXPECT_EQ(model.default_sampling_params_json(), "{\"temperature\":0.5}");
  engine_api::GetServerInfoResponse server;
  ASSERT_TRUE(vllm_stub_->GetServerInfo(&for_server, {}, &server).ok());
  EXPECT_EQ(server.server_type(), "foretoken");
  EXPECT_EQ(server.max_num_seqs(), 16);
  EXPECT_EQ(server.data_parallel_size(), 1);
  EXPECT_EQ(server.last_receive_timestamp(), 0);
  engine_api::GetLoadsResponse loads;
  ASSERT_TRUE(vllm_stub_->GetLoads(&for_loads, {}, &loads).ok());
  ASSERT_EQ(loads.loads_size(), 1);
  EXPECT_EQ(loads.dp_rank_count(), 1);
  EXPECT_EQ(loads.loads(0).num_running_reqs(), 3);
  EXPECT_NE(loads.timestamp(), "");
  engine_api::GetLoadsRequest of_rank_1;
  of_rank_1.set_dp_rank(1);
  ASSERT_TRUE(vllm_stub_->GetLoads(&for_other, of_rank_1, &loads).ok());
  EXPECT_EQ(loads.loads_size(), 0);
}

TEST_F(VllmEngineServiceTest, SendsTheTokenizerInPiecesWithTheDigestOnTheLast) {
  grpc::ClientContext context;
  const auto reader = vllm_stub_->GetTokenizer(&context, {});
  engine_api::GetTokenizerChunk chunk;
  std::string bytes, digests;
  int num_chunks = 0;
  while (reader->Read(&chunk)) {
    EXPECT_LE(chunk.data().size(), size_t{64} << 10);
    EXPECT_EQ(digests, "") << "a piece after the last one";
    bytes += chunk.data();
    digests += chunk.sha256();
    ++num_chunks;
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(bytes, std::string(150'000, 'z'));
  EXPECT_EQ(digests, "digest");
  EXPECT_EQ(num_chunks, 3);
  EXPECT_TRUE(Comes([&] { return ReadMetric("foretoken_rpc_calls_total,rpc=GetTokenizer,code=OK,api=vllm") == 1; }));
}

class SlowVllmReaders : public VllmEngineServiceTest {
 protected:
  SlowVllmReaders() : VllmEngineServiceTest({.max_write_time = absl::Milliseconds(400)}) {}
};

TEST_F(SlowVllmReaders, OfTheTokenizerAreEndedByName) {
  grpc::ClientContext context;
  const auto reader = vllm_stub_->GetTokenizer(&context, {});
  ASSERT_TRUE(Comes([&] { return calls_->unread().totals().num_calls == 1; }));
  ASSERT_TRUE(Comes([&] { return calls_->unread().totals().num_calls == 0; }));
  engine_api::GetTokenizerChunk chunk;
  while (reader->Read(&chunk)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(VllmEngineServiceTest, MetadataNamesWhatTheMessageLeavesEmpty) {
  grpc::ClientContext named, other;
  named.AddMetadata("x-request-id", "from-the-gateway");
  named.AddMetadata("x-foretoken-tenant", "a");
  named.AddMetadata("x-foretoken-priority", "-3");
  const auto first = vllm_stub_->Generate(&named, Prompt());
  const GenerationRequest request = engine_.WaitForRequest(0);
  EXPECT_EQ(request.request_id, "from-the-gateway");
  EXPECT_EQ(request.tenant, "a");
  EXPECT_EQ(request.priority, -3);
  other.AddMetadata("x-request-id", "from-the-gateway");
  other.AddMetadata("x-foretoken-tenant", "b");
  const auto second = stub_->Generate(&other, Named("c", "own"));
  EXPECT_EQ(engine_.WaitForRequest(1).request_id, "own");
  EXPECT_EQ(engine_.WaitForRequest(1).tenant, "c");
  calls_->FailAll(absl::UnavailableError("the test ends"));
  grpc::ClientContext bad;
  bad.AddMetadata("x-foretoken-priority", "high");
  const auto third = vllm_stub_->Generate(&bad, Prompt());
  const grpc::Status status = third->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("x-foretoken-priority: expected an integer"));
}

}  // namespace
}  // namespace foretoken::verifier
