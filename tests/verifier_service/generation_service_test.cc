// SPDX-License-Identifier: Apache-2.0
// The service over loopback, with a scripted engine behind it: the tests say what it outputs and when.
#include "verifier_service/generation_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "tests/testing/paths.h"

namespace foretoken::verifier {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kSoon = absl::Seconds(20);  // fails the test; never waited for otherwise

// Takes requests and says what the test tells it to.
class ScriptedEngine {
 public:
  explicit ScriptedEngine(Publisher* publisher) : publisher_(publisher) {}

  EnginePort Port() {
    return {.reserve = [this] { return Reserve(); },
            .submit = [this](QueuePlace place, GenerationRequest request) { return Submit(std::move(place), request); },
            .abort_by_id = [](const std::string& id) { return id == "known"; },
            .abort = [this](Ticket ticket) { Abort(ticket); }};
  }

  absl::StatusOr<QueuePlace> Reserve() {
    if (is_draining) return absl::UnavailableError("draining");
    if (num_queued.fetch_add(1) >= max_queued) {
      num_queued.fetch_sub(1);
      return absl::ResourceExhaustedError("full");
    }
    return QueuePlace(&num_queued);
  }
  absl::Status Submit(QueuePlace, GenerationRequest request) {
    absl::MutexLock lock(&mutex_);
    requests_.push_back(std::move(request));
    return submit_status;
  }
  void Abort(Ticket ticket) {
    absl::MutexLock lock(&mutex_);
    aborted_.push_back(ticket);
  }

  // The n-th request that was submitted.
  GenerationRequest WaitForRequest(size_t n = 0) {
    absl::MutexLock lock(&mutex_);
    const auto is_here = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return requests_.size() > n; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&is_here), kSoon));
    return requests_[n];
  }
  bool WaitForAbort(Ticket ticket) {
    absl::MutexLock lock(&mutex_);
    const auto is_here = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::find(aborted_.begin(), aborted_.end(), ticket) != aborted_.end();
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&is_here), kSoon);
  }
  size_t num_requests() {
    absl::MutexLock lock(&mutex_);
    return requests_.size();
  }

  void Say(Ticket ticket, int32_t sample, const std::string& text) {
    SampleOutput output;
    output.ticket = ticket;
    output.sample_index = sample;
    output.text = text;
    output.token_ids = {1};
    output.text_ends = {num_text_bytes_[ticket] += static_cast<uint32_t>(text.size())};
    output.speculated = {false};
    Publish(std::move(output));
  }
  void Complete(Ticket ticket, int32_t sample, FinishReason reason = FinishReason::kStop) {
    SampleOutput output;
    output.ticket = ticket;
    output.sample_index = sample;
    output.completion = SampleCompletion{.finish_reason = reason};
    Publish(std::move(output));
  }
  void Fail(Ticket ticket, absl::Status error) {
    SampleOutput output;
    output.ticket = ticket;
    output.error = std::move(error);
    Publish(std::move(output));
  }

  std::atomic<int32_t> num_queued{0};
  std::atomic<int32_t> max_queued{8};
  std::atomic<bool> is_draining{false};
  absl::Status submit_status;

 private:
  void Publish(SampleOutput output) {
    std::vector<SampleOutput> outputs;
    outputs.push_back(std::move(output));
    publisher_->Publish(std::move(outputs));
  }

  Publisher* publisher_;
  absl::Mutex mutex_;
  std::vector<GenerationRequest> requests_;
  std::vector<Ticket> aborted_;
  std::map<Ticket, uint32_t> num_text_bytes_;  // of the first sample
};

class GenerationServiceTest : public ::testing::Test {
 protected:
  GenerationServiceTest() : metrics_(registry_), engine_(&publisher_) {
    ServedModel model;
    model.name = "demo";
    model.architecture = "LlamaForCausalLM";
    model.num_parameters = 7;
    model.tokenizer = &tokenizer_;
    model.vocabulary_size = 4096;
    model.max_context_tokens = 1024;
    model.end_token_ids = {4092};
    model.vocabulary_fingerprint = "v";
    model.numerics_fingerprint = "n";
    model.default_sampling = {.temperature = 0.5f};
    model.max_tree_nodes = 32;
    service_ = std::make_unique<GenerationService>(GenerationServiceParts{
        .model = model,
        .engine = engine_.Port(),
        .publisher = &publisher_,
        .metrics = &metrics_,
        .draw_bits = [] { return uint64_t{77}; },
        .proposers = [] { return std::vector<ProposerStatus>{{.name = "ngram", .num_connected = 2}}; }});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("localhost:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel("localhost:" + std::to_string(port), grpc::InsecureChannelCredentials());
    stub_ = v1::GenerationService::NewStub(channel_);
  }

  ~GenerationServiceTest() override { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5)); }

  static v1::GenerateRequest Request(const std::string& text = "def f():") {
    v1::GenerateRequest request;
    request.set_text(text);
    return request;
  }
  // Of a request that is refused.
  grpc::Status Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    EXPECT_FALSE(reader->Read(&response));
    return reader->Finish();
  }

  tokenizer::Tokenizer tokenizer_ = *tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target"));
  prometheus::Registry registry_;
  CallMetrics metrics_;
  Publisher publisher_;
  ScriptedEngine engine_;
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

// A stream that must not notice what happens to others.
class Bystander {
 public:
  Bystander(v1::GenerationService::Stub& stub, ScriptedEngine& engine, const v1::GenerateRequest& request)
      : engine_(engine), reader_(stub.Generate(&context_, request)), ticket_(engine.WaitForRequest().ticket) {}

  void ExpectToGoOn() {
    engine_.Say(ticket_, 0, "more");
    v1::GenerateResponse response;
    ASSERT_TRUE(reader_->Read(&response));
    EXPECT_EQ(response.text(), "more");
  }
  void ExpectToEnd() {
    engine_.Complete(ticket_, 0);
    v1::GenerateResponse response;
    ASSERT_TRUE(reader_->Read(&response));
    EXPECT_TRUE(response.has_completion());
    EXPECT_FALSE(reader_->Read(&response));
    EXPECT_TRUE(reader_->Finish().ok());
  }

 private:
  ScriptedEngine& engine_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  Ticket ticket_;
};

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
  EXPECT_TRUE(service_->WaitUntilIdle(kSoon));
}

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
  bystander.ExpectToEnd();
  EXPECT_EQ(engine_.num_requests(), 1);
  EXPECT_EQ(engine_.num_queued, 0);
}

// Calls a method with bytes, as a client would whose library does not check strings.
grpc::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(bytes);
  const auto call =
      stub.PrepareUnaryCall(&context, "/foretoken.v1.GenerationService/" + method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  return status;
}

TEST_F(GenerationServiceTest, NamesTheFieldThatIsNotUtf8) {
  Bystander bystander(*stub_, engine_, Request());
  const std::string text_field = std::string("\x2a\x02\xff\xfe", 4);    // Generate: 5
  const std::string text_field_2 = std::string("\x12\x02\xff\xfe", 4);  // Tokenize: 2
  for (const auto& [method, bytes] : {std::pair("Generate", text_field), {"Tokenize", text_field_2}}) {
    const grpc::Status status = CallWithBytes(channel_, method, bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(status.error_message(), "text: expected UTF-8, got another byte sequence") << method;
    bystander.ExpectToGoOn();
  }
  EXPECT_EQ(CallWithBytes(channel_, "Generate", "\x07garbage").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  bystander.ExpectToEnd();
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

TEST_F(GenerationServiceTest, AFullQueueRefusesBeforeAnythingIsRead) {
  engine_.max_queued = 0;
  EXPECT_EQ(Generate(Request(std::string(10 << 20, 'x'))).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GenerationServiceTest, ADrainingServerRefuses) {
  Bystander bystander(*stub_, engine_, Request());
  engine_.is_draining = true;
  EXPECT_EQ(Generate(Request()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(service_->WaitUntilIdle(absl::Milliseconds(1)));
  bystander.ExpectToEnd();
  EXPECT_TRUE(service_->WaitUntilIdle(kSoon));
}

TEST_F(GenerationServiceTest, WhatTheEngineRefusesIsTheCallsStatus) {
  engine_.submit_status = absl::AlreadyExistsError("request_id: in use");
  EXPECT_EQ(Generate(Request()).error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(GenerationServiceTest, AnErrorOfOneRequestIsItsStatusAlone) {
  Bystander bystander(*stub_, engine_, Request());
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request());
  engine_.Fail(engine_.WaitForRequest(1).ticket, absl::InternalError("logits are not finite"));
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INTERNAL);
  bystander.ExpectToEnd();
}

TEST_F(GenerationServiceTest, CancellingACallAbortsItsRequest) {
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request());
  const Ticket ticket = engine_.WaitForRequest().ticket;
  context.TryCancel();
  EXPECT_TRUE(engine_.WaitForAbort(ticket));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(service_->WaitUntilIdle(kSoon));
  engine_.Say(ticket, 0, "too late");
}

TEST_F(GenerationServiceTest, ADeadlineAbortsItsRequest) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));  // enough to get there
  const auto reader = stub_->Generate(&context, Request());
  EXPECT_TRUE(engine_.WaitForAbort(engine_.WaitForRequest().ticket));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(service_->WaitUntilIdle(kSoon));
}

TEST_F(GenerationServiceTest, CallsCancelledAtAnyPointLeaveNothingBehind) {
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, Request());
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i * 10));
    context.TryCancel();
    reader->Finish();
  }
  EXPECT_TRUE(service_->WaitUntilIdle(kSoon));
}

TEST_F(GenerationServiceTest, ASlowReaderStallsNobodyAndLosesNothing) {
  grpc::ClientContext slow_context;
  const auto slow = stub_->Generate(&slow_context, Request());
  const Ticket slow_ticket = engine_.WaitForRequest().ticket;
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request());
  const Ticket ticket = engine_.WaitForRequest(1).ticket;
  const std::string block(10000, 'x');
  constexpr int kNumBlocks = 2000;  // 20 MB, more than any window holds
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
  output.prompt = PromptEcho{.token_ids = submitted.prompt, .logprobs = {}};
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

TEST_F(GenerationServiceTest, PassesOnASoundTraceContextOnly) {
  const std::string sound = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  for (const auto& [i, sent] : {std::pair(0, sound), {1, std::string("nonsense")}}) {
    grpc::ClientContext context;
    context.AddMetadata("traceparent", sent);
    const auto reader = stub_->Generate(&context, Request());
    const GenerationRequest request = engine_.WaitForRequest(i);
    EXPECT_EQ(request.traceparent, i == 0 ? sound : "");
    engine_.Complete(request.ticket, 0);
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
  }
}

TEST_F(GenerationServiceTest, AbortSaysWhetherTheRequestIsKnown) {
  for (const auto& [id, code, aborted] :
       {std::tuple("known", grpc::OK, true), {"other", grpc::OK, false}, {"", grpc::INVALID_ARGUMENT, false}}) {
    grpc::ClientContext context;
    v1::AbortRequest request;
    request.set_request_id(id);
    v1::AbortResponse response;
    EXPECT_EQ(stub_->Abort(&context, request, &response).error_code(), code) << id;
    EXPECT_EQ(response.aborted(), aborted) << id;
  }
}

TEST_F(GenerationServiceTest, AbortAllReachesEveryRequest) {
  Bystander bystander(*stub_, engine_, Request());
  service_->AbortAll();
  EXPECT_TRUE(engine_.WaitForAbort(engine_.WaitForRequest().ticket));
  bystander.ExpectToEnd();
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

TEST_F(GenerationServiceTest, TellsWhatItServes) {
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

TEST_F(GenerationServiceTest, EveryMethodKnowsItsModelOnly) {
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

TEST_F(GenerationServiceTest, MeasuresTheTimeToTheFirstToken) {
  Bystander bystander(*stub_, engine_, Request());
  bystander.ExpectToGoOn();
  bystander.ExpectToGoOn();
  bystander.ExpectToEnd();
  ASSERT_TRUE(service_->WaitUntilIdle(kSoon));
  std::vector<std::string> counts;
  for (const prometheus::MetricFamily& family : registry_.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      counts.push_back(family.name + " " + std::to_string(metric.histogram.sample_count));
    }
  }
  EXPECT_THAT(counts, Contains("foretoken_time_to_first_token_seconds 1"));
  EXPECT_THAT(counts, Contains("foretoken_inter_token_seconds 1"));
}

}  // namespace
}  // namespace foretoken::verifier
