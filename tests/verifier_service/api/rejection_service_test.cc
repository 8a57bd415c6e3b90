// SPDX-License-Identifier: Apache-2.0
// Rejection sampling from a client's request to a sampling proposer's service and back, over loopback. If this test
// fails, requests with this rule get no speculation: sampled trees are lost or refused on the way.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proposer_service/proposal_service.h"
#include "tests/testing/fakes/sampling_proposer.h"
#include "tests/testing/paths.h"
#include "verifier_service/verifier.h"

namespace foretoken::verifier {
namespace {

struct Sample {
  grpc::Status status;
  std::vector<uint32_t> token_ids;
  v1::Completion completion;
};

// A verifier of the demo model, and a proposer service that samples from the demo draft model.
class RejectionService : public ::testing::Test {
 protected:
  RejectionService() {
    auto sampler = std::make_unique<testing::SamplingProposer>(
        testing::ModelDistribution(testing::SourcePath("deploy/demo/draft")),
        testing::SamplingProposerOptions{.top_k = 12, .children_by_depth = {3, 2, 1}});
    service_ = *proposer::ProposalService::Create({}, std::move(sampler), metrics_);
    proposer_server_ = *rpc::Server::Start({.listen_address = "127.0.0.1:0"}, {service_.get()});
    Config config;
    config.model_directory = testing::SourcePath("deploy/demo/target");
    config.listen_address = "127.0.0.1:0";
    config.num_threads = 1;
    const std::string spec = absl::StrCat("sampling=static:127.0.0.1:", proposer_server_->port());
    verifier_ = *Verifier::Start(config, {.proposers = {*ParseProposerSpec(spec)},
                                          .metrics = &verifier_metrics_,
                                          .draw_bits = [this] { return ++num_drawn_; }});
    stub_ = v1::GenerationService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", verifier_->port()), grpc::InsecureChannelCredentials()));
  }

  Sample Generate(v1::VerificationRule rule, float temperature) {
    v1::GenerateRequest request;
    request.set_text("import os\nimport sys\n");
    request.set_verification(rule);
    request.mutable_sampling()->set_temperature(temperature);
    request.mutable_stopping()->set_max_tokens(60);
    request.mutable_stopping()->set_ignore_eos(true);
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    const auto reader = stub_->Generate(&context, request);
    Sample sample;
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      sample.token_ids.insert(sample.token_ids.end(), response.token_ids().begin(), response.token_ids().end());
      if (response.has_completion()) sample.completion = response.completion();
    }
    sample.status = reader->Finish();
    return sample;
  }

  uint64_t num_drawn_ = 0;
  telemetry::Metrics metrics_, verifier_metrics_;
  std::unique_ptr<proposer::ProposalService> service_;
  std::unique_ptr<rpc::Server> proposer_server_;
  std::unique_ptr<Verifier> verifier_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

TEST_F(RejectionService, SampledTreesComeOverTheWireAndAreAccepted) {
  uint64_t num_accepted = 0;
  for (int round = 0; round < 50 && num_accepted == 0; ++round) {  // until the proposer is connected
    const Sample sample = Generate(v1::VERIFICATION_RULE_REJECTION_SAMPLING, 0.8f);
    ASSERT_TRUE(sample.status.ok()) << sample.status.error_message();
    EXPECT_EQ(sample.token_ids.size(), 60);
    for (const v1::ProposerUsage& usage : sample.completion.usage().proposers()) {
      EXPECT_EQ(usage.proposer(), "sampling");
      num_accepted += usage.accepted_tokens();
    }
  }
  EXPECT_GT(num_accepted, 0);
  EXPECT_EQ(Generate(v1::VERIFICATION_RULE_REJECTION_SAMPLING, 0).token_ids,
            Generate(v1::VERIFICATION_RULE_KEYED_DRAW, 0).token_ids);
}

}  // namespace
}  // namespace foretoken::verifier
