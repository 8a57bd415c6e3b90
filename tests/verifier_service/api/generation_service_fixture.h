// SPDX-License-Identifier: Apache-2.0
// The service over loopback, with a scripted engine behind it. The test chooses the engine's outputs and their times.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/error_text.h"
#include "common/base/steady_clock.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "verifier_service/api/generation_service.h"

namespace foretoken::verifier {

inline constexpr absl::Duration kSoon = absl::Seconds(20);  // only a failing test waits this long

// Accepts requests and returns the outputs that the test sets.
class ScriptedEngine {
 public:
  explicit ScriptedEngine(Publisher* publisher) : publisher_(publisher) {}

  EnginePort Port() {
    return {.reserve = [this](const RequestArrival& arrival) { return Reserve(arrival); },
            .submit = [this](QueuePlace place, GenerationRequest request) { return Submit(std::move(place), request); },
            .abort = [this](Ticket ticket) { Abort(ticket); }};
  }

  absl::StatusOr<QueuePlace> Reserve(const RequestArrival& arrival) {
    absl::MutexLock lock(&mutex_);  // so that a burst gets as many places as there are
    arrived_tenants_.emplace_back(arrival.tenant);
    last_arrival_samples_ = arrival.num_samples;
    last_arrival_bytes_ = arrival.num_bytes;
    if (is_draining) return absl::UnavailableError("draining");
    if (num_queued() >= max_queued) {
      return base::Passing(base::WithReason(absl::ResourceExhaustedError("full"), "QUEUE_FULL"));
    }
    return queue_.Reserve(arrival.num_bytes, arrival.tenant);
  }
  absl::Status Submit(QueuePlace, GenerationRequest request) {
    ++num_submits;
    if (before_submit) before_submit();
    absl::MutexLock lock(&mutex_);
    requests_.push_back(std::move(request));
    return submit_status;
  }
  // The tenants of the requests that asked for a place.
  std::vector<std::string> arrived_tenants() {
    absl::MutexLock lock(&mutex_);
    return arrived_tenants_;
  }
  int64_t last_arrival_bytes() {
    absl::MutexLock lock(&mutex_);
    return last_arrival_bytes_;
  }
  int64_t last_arrival_samples() {
    absl::MutexLock lock(&mutex_);
    return last_arrival_samples_;
  }
  void Abort(Ticket ticket) {
    absl::MutexLock lock(&mutex_);
    aborted_.push_back(ticket);
  }

  // Waits for the n-th submitted request and returns it.
  GenerationRequest WaitForRequest(size_t n = 0) {
    absl::MutexLock lock(&mutex_);
    const auto is_here = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return requests_.size() > n; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&is_here), kSoon));
    return requests_[n];
  }
  bool was_aborted(Ticket ticket) {
    absl::MutexLock lock(&mutex_);
    return std::find(aborted_.begin(), aborted_.end(), ticket) != aborted_.end();
  }
  bool WaitForAbort(Ticket ticket) {
    absl::MutexLock lock(&mutex_);
    const auto is_here = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::find(aborted_.begin(), aborted_.end(), ticket) != aborted_.end();
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&is_here), kSoon);
  }
  size_t num_aborts() {
    absl::MutexLock lock(&mutex_);
    return aborted_.size();
  }
  size_t num_requests() {
    absl::MutexLock lock(&mutex_);
    return requests_.size();
  }

  void Say(Ticket ticket, int32_t sample, const std::string& text) {
    SampleOutput output;
    output.ticket = ticket;
    output.sample_index = sample;
    output.time = SteadyNow();
    output.text = text;
    output.token_ids = {1};
    output.text_ends = {num_text_bytes_[ticket] += static_cast<uint32_t>(text.size())};
    output.speculated = {false};
    Publish(std::move(output));
  }
  // The prompt with log-probabilities, `num_top` at each position.
  void SayPrompt(Ticket ticket, size_t num_tokens, size_t num_top) {
    SampleOutput output;
    output.ticket = ticket;
    output.prompt =
        PromptEcho{.token_ids = std::make_shared<const std::vector<int32_t>>(num_tokens, 7),
                   .logprobs = {num_tokens - 1, {.top = std::vector<kernels::TokenLogprob>(num_top, {.logprob = -1})}}};
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

  int64_t num_queued() const { return queue_.load().num_requests; }

  std::atomic<int32_t> max_queued{8};
  std::atomic<bool> is_draining{false};
  absl::Status submit_status;
  std::function<void()> before_submit;  // called on the worker thread
  std::atomic<int> num_submits{0};      // that have begun; each takes a worker

 private:
  void Publish(SampleOutput output) {
    std::vector<SampleOutput> outputs;
    outputs.push_back(std::move(output));
    publisher_->Publish(std::move(outputs));
  }

  Publisher* publisher_;
  QueueSpace queue_{{.num_requests = 1024, .num_tokens = 1 << 20}};
  absl::Mutex mutex_;
  std::vector<GenerationRequest> requests_;
  std::vector<Ticket> aborted_;
  std::vector<std::string> arrived_tenants_;
  int64_t last_arrival_samples_ = 0;
  int64_t last_arrival_bytes_ = 0;
  std::map<Ticket, uint32_t> num_text_bytes_;  // of sample 0
};

class GenerationServiceTest : public ::testing::Test {
 protected:
  explicit GenerationServiceTest(int32_t max_lookups = 16, const UnreadLimits& unread = {})
      : metrics_(registry_), engine_(&publisher_) {
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
    calls_ = std::make_unique<GenerateCalls>(GenerateCallsParts{.model = model,
                                                                .engine = engine_.Port(),
                                                                .publisher = &publisher_,
                                                                .metrics = &metrics_,
                                                                .draw_bits = [this] { return next_bits_++; },
                                                                .unread = unread});
    service_ = std::make_unique<GenerationService>(
        GenerationServiceParts{.calls = calls_.get(), .max_lookups = max_lookups, .proposers = [] {
                                 return std::vector<ProposerStatus>{{.name = "ngram", .num_connected = 2}};
                               }});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("localhost:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // keeps windows small, so that unread output waits at the server
    channel_ =
        grpc::CreateCustomChannel("localhost:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::GenerationService::NewStub(channel_);
  }

  ~GenerationServiceTest() override { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5)); }

  static v1::GenerateRequest Request(const std::string& text = "def f():") {
    v1::GenerateRequest request;
    request.set_text(text);
    return request;
  }
  static constexpr int64_t kBlockBytes = 100'000;
  void SayBlocks(Ticket ticket, int num_blocks) {
    for (int i = 0; i < num_blocks; ++i) engine_.Say(ticket, 0, std::string(kBlockBytes, 'x'));
  }
  // Returns a counter's value or a histogram's count. Labels follow the name.
  std::optional<double> ReadMetric(absl::string_view name) {
    for (const prometheus::MetricFamily& family : registry_.Collect()) {
      for (const prometheus::ClientMetric& metric : family.metric) {
        std::vector<std::string> key = {family.name};
        for (const auto& label : metric.label) key.push_back(absl::StrCat(label.name, "=", label.value));
        std::sort(key.begin() + 1, key.end(), std::greater<>());
        if (absl::StrJoin(key, ",") != name) continue;
        return metric.counter.value + static_cast<double>(metric.histogram.sample_count);
      }
    }
    return std::nullopt;
  }
  // Returns the status of a request that the service refuses.
  grpc::Status Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    EXPECT_FALSE(reader->Read(&response));
    return reader->Finish();
  }

  tokenizer::Tokenizer tokenizer_ = *tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target"));
  telemetry::Metrics registry_;
  CallMetrics metrics_;
  Publisher publisher_;
  ScriptedEngine engine_;
  std::atomic<uint64_t> next_bits_{77};
  std::unique_ptr<GenerateCalls> calls_;
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

// A stream that must not notice other calls.
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

inline bool Comes(const std::function<bool()>& condition) {
  for (const absl::Time end = absl::Now() + kSoon; absl::Now() < end; absl::SleepFor(absl::Milliseconds(1))) {
    if (condition()) return true;
  }
  return false;
}

inline v1::GenerateRequest Named(const std::string& tenant, const std::string& request_id) {
  v1::GenerateRequest request;
  request.set_text("def f():");
  request.set_tenant(tenant);
  request.set_request_id(request_id);
  return request;
}

}  // namespace foretoken::verifier
