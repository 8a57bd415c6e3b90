// SPDX-License-Identifier: Apache-2.0
// A request's speculation options, from the message to proposers in their own services, and the usage that the client
// gets back. If this test fails, a client's choice of proposers, nodes or predictions is ignored, or its usage is
// wrong.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/scripted_proposer.h"
#include "tests/testing/running_verifier.h"

namespace foretoken::verifier {
namespace {

using testing::DemoConfig;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Output;
using testing::RunningVerifier;
using testing::ScriptedProposer;

constexpr uint32_t kNumOutputTokens = 60;

// Two proposers that guess the greedy output of the demo model.
class SpeculationControl : public ::testing::Test {
 protected:
  SpeculationControl() {
    v1::GenerateRequest request = Request();
    request.mutable_speculation()->set_mode(v1::SPECULATION_MODE_OFF);
    request.mutable_output()->set_echo(true);
    const Output output = verifier_.Generate(request);
    EXPECT_TRUE(output.status.ok()) << output.status.error_message();
    truth_ = output.samples.at(0);
    std::vector<uint32_t> whole(output.prompt.token_ids().begin(), output.prompt.token_ids().end());
    whole.insert(whole.end(), truth_.token_ids.begin(), truth_.token_ids.end());
    for (ScriptedProposer* proposer : {&left_, &right_}) {
      proposer->SetTree([whole](const ScriptedProposer::Mirror& mirror) {
        v1::TokenTree tree;
        const size_t end = std::min(whole.size(), mirror.token_ids.size() + mirror.node_budget);
        for (size_t i = mirror.token_ids.size(); i < end; ++i) {
          tree.add_token_ids(whole[i]);
          tree.add_parents(tree.token_ids_size() - 2);
          tree.add_chances(.9f);
        }
        return tree;
      });
    }
  }

  void SetUp() override {
    const absl::Time end = absl::Now() + testing::kPatience;
    while ((left_.num_streams() == 0 || right_.num_streams() == 0) && absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(2));
    }
    ASSERT_EQ(left_.num_streams() + right_.num_streams(), 2);
  }

  static v1::GenerateRequest Request() { return testing::Greedy("def read_config(path):\n", kNumOutputTokens); }

  // Returns the usage of a request with these options. Checks that its tokens equal the tokens without speculation.
  v1::Usage UsageWith(const v1::SpeculationOptions& options) {
    v1::GenerateRequest request = Request();
    *request.mutable_speculation() = options;
    const Output output = verifier_.Generate(request);
    EXPECT_TRUE(output.status.ok()) << output.status.error_message();
    EXPECT_EQ(output.samples.at(0).token_ids, truth_.token_ids);
    const v1::Usage& usage = output.samples.at(0).completion.usage();
    CheckSums(usage);
    return usage;
  }

  static void CheckSums(const v1::Usage& usage) {
    uint64_t num_steps = 0, num_accepted = 0;
    for (int length = 0; length < usage.accepted_lengths_size(); ++length) {
      num_steps += usage.accepted_lengths(length);
      num_accepted += static_cast<uint64_t>(length) * usage.accepted_lengths(length);
    }
    EXPECT_EQ(num_steps, usage.steps());
    EXPECT_EQ(num_accepted, usage.completion_tokens() - usage.steps());
    EXPECT_LE(usage.verified_nodes(), usage.proposed_nodes());
    for (const v1::ProposerUsage& proposer : usage.proposers()) {
      EXPECT_LE(proposer.proposed_tokens(), usage.verified_nodes());
      EXPECT_LE(proposer.accepted_tokens(), num_accepted);
    }
  }

  static std::vector<std::string> Names(const v1::Usage& usage) {
    std::vector<std::string> names;
    for (const v1::ProposerUsage& proposer : usage.proposers()) names.push_back(proposer.proposer());
    return names;
  }

  static int NumSessions(const ScriptedProposer& proposer) {
    const std::vector<v1::ProposeRequest> requests = proposer.Requests();
    return std::accumulate(requests.begin(), requests.end(), 0,
                           [](int sum, const v1::ProposeRequest& request) { return sum + request.opens_size(); });
  }

  ScriptedProposer left_{{.method = "left"}};
  ScriptedProposer right_{{.method = "right"}};
  RunningVerifier verifier_{
      DemoConfig(), {absl::StrCat("left=static:", left_.address()), absl::StrCat("right=static:", right_.address())}};
  testing::Sample truth_;
};

TEST_F(SpeculationControl, AFilterByNameExcludesOtherProposers) {
  v1::SpeculationOptions options;
  options.add_proposers("left");
  uint64_t num_accepted = 0;
  for (int round = 0; round < 50 && num_accepted == 0; ++round) {
    const v1::Usage usage = UsageWith(options);
    EXPECT_EQ(usage.speculation_mode(), v1::SPECULATION_MODE_AUTO);
    if (usage.proposers().empty()) continue;
    EXPECT_EQ(Names(usage), std::vector<std::string>{"left"});
    num_accepted = usage.proposers(0).accepted_tokens();
    EXPECT_EQ(num_accepted, usage.completion_tokens() - usage.steps()) << "no other proposer guessed";
    EXPECT_EQ(usage.proposers(0).proposed_tokens(), usage.verified_nodes());
  }
  EXPECT_GT(num_accepted, 0);
  EXPECT_GT(NumSessions(left_), 0);
  EXPECT_EQ(NumSessions(right_), 0);
}

TEST_F(SpeculationControl, OffAndNoNodesOpenNoSession) {
  v1::SpeculationOptions off;
  off.set_mode(v1::SPECULATION_MODE_OFF);
  v1::SpeculationOptions no_nodes;
  no_nodes.set_max_tree_nodes(0);
  for (v1::SpeculationOptions options : {off, no_nodes}) {
    options.set_prediction_text(truth_.text);
    const v1::Usage usage = UsageWith(options);
    EXPECT_EQ(usage.speculation_mode(), v1::SPECULATION_MODE_OFF);
    EXPECT_EQ(usage.steps(), kNumOutputTokens);
    EXPECT_EQ(usage.proposed_nodes(), 0);
    EXPECT_THAT(usage.proposers(), IsEmpty());
    EXPECT_EQ(usage.accepted_prediction_tokens() + usage.rejected_prediction_tokens(), 0);
  }
  EXPECT_EQ(NumSessions(left_) + NumSessions(right_), 0);
}

TEST_F(SpeculationControl, NodesPerStepAreLimited) {
  v1::SpeculationOptions options;
  options.set_max_tree_nodes(2);
  options.set_prediction_text(truth_.text);
  const v1::Usage usage = UsageWith(options);
  EXPECT_LE(usage.verified_nodes(), 2 * usage.steps());
  EXPECT_LE(usage.accepted_lengths_size(), 3);
  EXPECT_GE(usage.steps(), kNumOutputTokens / 3);
}

TEST_F(SpeculationControl, APredictionIsAProposerAndMayBeTheOnlyProposer) {
  v1::SpeculationOptions options;
  options.set_prediction_text(truth_.text);
  options.add_proposers("prediction");
  uint64_t num_accepted = 0;
  for (int round = 0; round < 50 && num_accepted == 0; ++round) {
    const v1::Usage usage = UsageWith(options);
    EXPECT_GT(usage.accepted_prediction_tokens(), kNumOutputTokens - 10)
        << "only the first tokens differ by tokenization";
    EXPECT_LT(usage.rejected_prediction_tokens(), 10);
    if (usage.proposers().empty()) continue;  // no guess got a row
    EXPECT_EQ(Names(usage), std::vector<std::string>{"prediction"});
    num_accepted = usage.proposers(0).accepted_tokens();
    EXPECT_EQ(num_accepted, kNumOutputTokens - usage.steps());
  }
  EXPECT_GT(num_accepted, 0);
  EXPECT_EQ(NumSessions(left_) + NumSessions(right_), 0);

  options.clear_proposers();
  options.set_prediction_text("nothing of the kind");
  const v1::Usage wrong = UsageWith(options);
  EXPECT_EQ(wrong.accepted_prediction_tokens(), 0);
  EXPECT_GT(wrong.rejected_prediction_tokens(), 0);
  EXPECT_EQ(NumSessions(left_), 1) << "without a filter the other proposers are used too";
}

TEST(SpeculationLimits, ATreeOfMoreNodesThanAnyRequestMayAskForIsDropped) {
  ScriptedProposer proposer({.method = "ngram"});
  proposer.SetTree([](ScriptedProposer::Mirror mirror) {
    mirror.node_budget = 5;
    return ScriptedProposer::CountingTree(mirror);
  });
  Config config = DemoConfig();
  config.engine.max_tree_nodes = 4;
  RunningVerifier verifier(config, {absl::StrCat("ngram=static:", proposer.address())});
  v1::GenerateRequest request = testing::Greedy("import os\n", 100);
  request.mutable_speculation()->set_mode(v1::SPECULATION_MODE_ALWAYS);
  const absl::Time end = absl::Now() + testing::kPatience;
  while (proposer.num_describes() < 2 && absl::Now() < end) {  // the pool ended its stream once
    EXPECT_EQ(verifier.Generate(request).samples.at(0).completion.usage().proposed_nodes(), 0);
  }
  EXPECT_GE(proposer.num_describes(), 2);
}

TEST(SpeculationPermissions, AnOperatorForbidsAlwaysAndAllowsStepReports) {
  Config config = DemoConfig();
  config.allow_always_speculation = false;
  config.allow_step_reports = true;
  RunningVerifier verifier(config);
  v1::GenerateRequest request = testing::Greedy("import os\n", 3);
  request.mutable_speculation()->set_report_steps(true);
  EXPECT_TRUE(verifier.Generate(request).status.ok());
  request.mutable_speculation()->set_mode(v1::SPECULATION_MODE_ALWAYS);
  const grpc::Status refused = verifier.Generate(request).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("speculation.mode: expected AUTO or OFF, because this server runs "
                                                 "without --allow_always_speculation"));
}

TEST_F(SpeculationControl, AnImpossibleOptionIsRefusedByName) {
  const auto error_of = [&](const v1::SpeculationOptions& options) {
    v1::GenerateRequest request = Request();
    *request.mutable_speculation() = options;
    const grpc::Status status = verifier_.Generate(request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  v1::SpeculationOptions options;
  options.add_proposers("left");
  options.add_proposers("middle");
  EXPECT_THAT(error_of(options), HasSubstr("speculation.proposers[1]: expected one of {left, right}, got \"middle\""));
  options.clear_proposers();
  options.add_proposers("prediction");
  EXPECT_THAT(error_of(options), HasSubstr("speculation.proposers[0]: "));
  options.clear_proposers();
  options.set_report_steps(true);
  EXPECT_THAT(error_of(options), HasSubstr("speculation.report_steps: expected false, because this server runs without "
                                           "--allow_step_reports"));
  options.clear_report_steps();
  options.mutable_prediction_tokens()->add_ids(1'000'000);
  EXPECT_THAT(error_of(options), HasSubstr("speculation.prediction_tokens.ids[0]: "));
}

}  // namespace
}  // namespace foretoken::verifier
