// SPDX-License-Identifier: Apache-2.0
// A whole verifier with the demo model inside the test, with a client over loopback.
//
//   RunningVerifier verifier;
//   const Output output = verifier.Generate(Greedy("import os\n", 40));
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/system_random.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "verifier_service/verifier.h"

namespace foretoken::testing {

inline constexpr absl::Duration kPatience = absl::Seconds(60);

// The whole output of one sample.
struct Sample {
  std::string text;
  std::vector<uint32_t> token_ids;
  std::vector<v1::PositionLogprobs> logprobs;
  v1::Completion completion;
};

struct Output {
  grpc::Status status;
  std::vector<Sample> samples;
  v1::PromptOutput prompt;  // all pieces concatenated
  int num_prompt_messages = 0;
};

inline verifier::Config DemoConfig() {
  verifier::Config config;
  config.model_directory = SourcePath("deploy/demo/target");
  config.model_name = "demo";
  config.listen_address = "127.0.0.1:0";
  config.num_threads = 1;
  config.drain_grace = absl::Seconds(1);
  return config;
}

class RunningVerifier {
 public:
  // `proposers` are specs, as on the command line.
  explicit RunningVerifier(const verifier::Config& config = DemoConfig(),
                           const std::vector<std::string>& proposers = {}) {
    std::vector<verifier::ProposerSpec> specs;
    for (const std::string& proposer : proposers) specs.push_back(*verifier::ParseProposerSpec(proposer));
    auto started = verifier::Verifier::Start(
        config, {.proposers = std::move(specs), .metrics = &metrics_, .draw_bits = base::SystemRandomBits});
    EXPECT_TRUE(started.ok()) << started.status();
    verifier_ = *std::move(started);
    stub_ = v1::GenerationService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(verifier_->port()), grpc::InsecureChannelCredentials()));
  }

  verifier::Verifier& operator*() { return *verifier_; }
  verifier::Verifier* operator->() { return verifier_.get(); }
  v1::GenerationService::Stub& stub() { return *stub_; }

  Output Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    Output output;
    output.samples.resize(std::max(1u, request.sampling().n()));
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      if (response.has_prompt()) {
        ++output.num_prompt_messages;
        EXPECT_EQ(output.prompt.awaiting_more(), output.prompt.token_ids_size() > 0) << "a prompt with another piece";
        const std::string text = output.prompt.text() + response.prompt().text();
        output.prompt.MergeFrom(response.prompt());
        output.prompt.set_text(text);
        output.prompt.set_awaiting_more(response.prompt().awaiting_more());
        continue;
      }
      Sample& sample = output.samples[response.sample_index()];
      EXPECT_FALSE(sample.completion.finish_reason()) << "output after the completion";
      EXPECT_EQ(response.text_ends_size(), response.token_ids_size());
      EXPECT_EQ(response.speculated_size(), response.token_ids_size());
      sample.text += response.text();
      for (const uint32_t end : response.text_ends()) EXPECT_LE(end, sample.text.size());
      sample.token_ids.insert(sample.token_ids.end(), response.token_ids().begin(), response.token_ids().end());
      sample.logprobs.insert(sample.logprobs.end(), response.logprobs().begin(), response.logprobs().end());
      if (response.has_completion()) sample.completion = response.completion();
    }
    output.status = reader->Finish();
    return output;
  }

  bool WaitUntil(const std::function<bool(const verifier::EngineStats&)>& condition) {
    for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end; absl::SleepFor(absl::Milliseconds(2))) {
      if (condition(verifier_->GetStats())) return true;
    }
    return false;
  }

 private:
  telemetry::Metrics metrics_;
  std::unique_ptr<verifier::Verifier> verifier_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

inline v1::GenerateRequest Greedy(const std::string& text, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

}  // namespace foretoken::testing
