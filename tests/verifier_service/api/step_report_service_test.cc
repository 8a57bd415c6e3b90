// SPDX-License-Identifier: Apache-2.0
// Step reports from a real verifier and a real proposer to the client that explains them, in one process. If this test
// fails, `foretoken explain` shows wrong or missing steps.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/explain/step_summary.h"
#include "client/explain/step_text.h"
#include "client/generation_client.h"
#include "client/token_texts.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/proposal_service.h"
#include "tests/testing/paths.h"
#include "verifier_service/verifier.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;

class StepReportService : public ::testing::Test {
 protected:
  StepReportService() {
    service_ = *proposer::ProposalService::Create({}, metrics_);
    proposer_server_ = *rpc::Server::Start({.listen_address = "127.0.0.1:0"}, {service_.get()});
    Config config;
    config.model_directory = testing::SourcePath("deploy/demo/target");
    config.listen_address = "127.0.0.1:0";
    config.num_threads = 1;
    config.allow_step_reports = true;
    const std::string spec = absl::StrCat("ngram=static:127.0.0.1:", proposer_server_->port());
    verifier_ = *Verifier::Start(
        config,
        {.proposers = {*ParseProposerSpec(spec)}, .metrics = &verifier_metrics_, .draw_bits = [] { return 7; }});
  }

  telemetry::Metrics metrics_, verifier_metrics_;
  std::unique_ptr<proposer::ProposalService> service_;
  std::unique_ptr<rpc::Server> proposer_server_;
  std::unique_ptr<Verifier> verifier_;
};

TEST_F(StepReportService, ReportsAndExplainsEveryStepOfEverySample) {
  auto client = client::GenerationClient::Connect({.target = absl::StrCat("127.0.0.1:", verifier_->port())}).value();
  v1::GenerateRequest request;
  request.set_text("x = 1\nx = 1\nx = 1\nx = 1\nx = 1\n");
  request.mutable_sampling()->set_temperature(0.5f);
  request.mutable_sampling()->set_n(2);
  request.mutable_stopping()->set_max_tokens(60);
  request.mutable_stopping()->set_ignore_eos(true);
  EXPECT_TRUE(client.Generate(request)->samples[0].steps.empty());

  request.mutable_speculation()->set_report_steps(true);
  bool has_guesses = false, has_round_trip = false;
  for (int round = 0; round < 50 && !has_guesses; ++round) {  // until the proposer is connected
    const client::Generation generation = client.Generate(request).value();
    ASSERT_EQ(generation.samples.size(), 2);
    const client::TokenTexts texts = FetchTokenTexts(client, "", generation).value();
    for (const client::Sample& sample : generation.samples) {
      std::vector<uint32_t> said;
      std::string explained;
      for (const v1::StepReport& step : sample.steps) {
        said.insert(said.end(), step.token_ids().begin(), step.token_ids().end());
        EXPECT_EQ(step.num_lost(), 0);
        EXPECT_GT(step.times().forward_ms(), 0);
        has_guesses = has_guesses || step.tree().token_ids_size() > 0;
        for (const v1::StepProposer& proposer : step.proposers()) {
          EXPECT_GE(proposer.round_trip_ms(), 0);
          EXPECT_LT(proposer.round_trip_ms(), 10'000);
          has_round_trip = has_round_trip || proposer.round_trip_ms() > 0;
        }
        explained += StepText(step, texts, {});
      }
      EXPECT_EQ(said, sample.token_ids);
      EXPECT_EQ(texts.Of(said), sample.text);
      EXPECT_THAT(ToText(client::Summarise(sample.steps)), HasSubstr("60 tokens in "));
      if (has_guesses) {
        EXPECT_THAT(explained, HasSubstr("  ngram"));
      }
    }
  }
  EXPECT_TRUE(has_guesses);
  EXPECT_TRUE(has_round_trip);
}

}  // namespace
}  // namespace foretoken::verifier
