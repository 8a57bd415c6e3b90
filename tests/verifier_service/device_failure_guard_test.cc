// SPDX-License-Identifier: Apache-2.0
// A service whose device fails in the middle of a step. If this test fails, clients of a failed GPU wait forever or
// lose the connection without an error, or the process keeps running and is not restarted.
#include "verifier_service/device_failure_guard.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/device_failure.h"
#include "tests/testing/fakes/forwarding_backend.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"
#include "verifier_service/api/generation_service.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

constexpr uint32_t kEndlessTokens = 900;
constexpr int kFailingStep = 12;

// Fails like a GPU: the error of an op shows when the host waits for the op.
class FailingBackend final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void AcceptTrees(const kernels::AcceptTreesArgs& args) override {
    ++num_steps_;
    ForwardingBackend::AcceptTrees(args);
  }
  void Synchronize() override {
    if (num_steps_ == kFailingStep) {
      kernels::EndOnDeviceFailure("device.cc:7: Wait(): an illegal memory access, rank 0 on GPU 0");
    }
    ForwardingBackend::Synchronize();
  }

 private:
  int num_steps_ = 0;
};

std::atomic<bool> client_knows{false};

// Gives the client time to write its status to standard error before the process ends.
void LetTheClientSpeak(int) {
  for (int i = 0; i < 2000 && !client_knows; ++i) absl::SleepFor(absl::Milliseconds(5));
}

void SayHowTheCallEnds(int port) {
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials());
  const auto stub = v1::GenerationService::NewStub(channel);
  v1::GenerateRequest request;
  request.set_text("import os\n");
  request.mutable_stopping()->set_max_tokens(kEndlessTokens);
  request.mutable_stopping()->set_ignore_eos(true);
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  int num_tokens = 0;
  while (reader->Read(&response)) num_tokens += response.token_ids_size();
  const grpc::Status status = reader->Finish();
  std::fprintf(stderr, "after %d tokens code %d: %s\n", num_tokens, status.error_code(),
               status.error_message().c_str());
  client_knows = true;
}

// A served engine on a failing device, with one client.
class FailingService {
 public:
  FailingService()
      : model_(testing::LoadModel(testing::SourcePath("deploy/demo/target"),
                                  {.wrap_backend =
                                       [](std::unique_ptr<kernels::Backend> backend) {
                                         return std::make_unique<FailingBackend>(std::move(backend));
                                       }})),
        tokenizer_(tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target")).value()),
        engine_({}, {.transformer = model_.transformer.get(),
                     .kv = &model_.kv,
                     .tokenizer = &tokenizer_,
                     .proposers = &proposers_,
                     .publish = [this](auto outputs) { publisher_.Publish(std::move(outputs)); }}),
        metrics_(registry_),
        calls_({.model = {.name = "demo",
                          .tokenizer = &tokenizer_,
                          .vocabulary_size = static_cast<int32_t>(tokenizer_.vocabulary().num_ids()),
                          .max_context_tokens = engine_.max_context_tokens()},
                .engine = {.reserve = [this](const RequestArrival& arrival) { return engine_.Reserve(arrival); },
                           .submit =
                               [this](QueuePlace place, GenerationRequest request) {
                                 return engine_.Submit(std::move(place), std::move(request));
                               },
                           .abort = [this](Ticket ticket) { engine_.Abort(ticket); }},
                .publisher = &publisher_,
                .metrics = &metrics_,
                .draw_bits = [] { return uint64_t{7}; }}),
        service_({.calls = &calls_, .proposers = [] { return std::vector<ProposerStatus>(); }}),
        guard_(calls_, [this] { engine_.Drain(); }) {}

  void ServeUntilTheDeviceFails() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    std::thread client([port] { SayHowTheCallEnds(port); });
    engine_.Start();
    client.join();
  }

 private:
  testing::LoadedModel model_;
  tokenizer::Tokenizer tokenizer_;
  testing::InProcessProposers proposers_;
  Publisher publisher_;
  Engine engine_;
  telemetry::Metrics registry_;
  CallMetrics metrics_;
  GenerateCalls calls_;
  GenerationService service_;
  DeviceFailureGuard guard_;
};

TEST(DeviceFailureGuardDeathTest, CallsInFlightEndWithUnavailableBeforeTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto serve = [] {
    std::signal(SIGABRT, LetTheClientSpeak);
    FailingService().ServeUntilTheDeviceFails();
  };
  EXPECT_DEATH(
      serve(),
      "device.cc:7: Wait.*, rank 0 on GPU 0\n(.*\n)?after 11 tokens code 14: a device of the server has failed");
}

}  // namespace
}  // namespace foretoken::verifier
