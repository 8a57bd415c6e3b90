// SPDX-License-Identifier: Apache-2.0
// The engine under rejection sampling. If this test fails, outputs do not follow the target's distribution, depend on
// proposers or rows, or change the tokens of other requests.
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "proposer_service/ngram/ngram.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/over_the_wire.h"
#include "tests/testing/fakes/sampling_proposer.h"

namespace foretoken::verifier {
namespace {

using ::testing::Contains;
using testing::EngineOptions;
using testing::InProcessProposers;
using ::testing::Not;
using testing::Results;
using testing::SamplingProposer;
using enum kernels::VerificationRule;

using Members = std::vector<InProcessProposers::Member>;

constexpr int32_t kNumDrawnTokens = 4093;

class RejectionTest : public testing::EngineFixture {
 protected:
  static void SetUpTestSuite() {
    EngineFixture::SetUpTestSuite();
    draft_ = std::make_unique<testing::LogitDistribution>(
        testing::ModelDistribution(testing::SourcePath("deploy/demo/draft")));
  }
  static void TearDownTestSuite() {
    draft_.reset();
    EngineFixture::TearDownTestSuite();
  }

  GenerationRequest Rejecting(const std::string& text, float temperature, int32_t max_tokens = 40) {
    GenerationRequest request = Request(text, temperature, max_tokens);
    request.verification = kRejectionSampling;
    request.stop.ignore_eos = true;
    return request;
  }

  std::vector<GenerationRequest> MixedRequests(kernels::VerificationRule rule, float temperature) {
    next_ticket_ = 1;
    std::vector<GenerationRequest> requests = {Rejecting("def read_config(path):\n", temperature),
                                               Rejecting("import os\nimport sys\n", temperature),
                                               Rejecting("x = 1\nx = 1\nx = 1\nx = 1\n", temperature, 60)};
    requests[0].sampling.frequency_penalty = 0.7f;
    requests[0].sampling.repetition_penalty = 1.3f;
    requests[1].banned_token_ids = {11, 258, 300};
    requests[1].output.num_logprobs = 2;
    requests[2].logit_bias = {{.token_id = 258, .bias = -2}};
    for (GenerationRequest& request : requests) request.verification = rule;
    return requests;
  }

  static inline std::unique_ptr<testing::LogitDistribution> draft_;
  InProcessProposers none_;
  SamplingProposer tree_{*draft_, {.top_k = 12, .children_by_depth = {3, 2, 1}}};
  SamplingProposer chain_{*draft_, {.top_k = 12, .children_by_depth = {1, 1, 1, 1, 1}}};
  proposer::NgramProposer ngram_{{}};
  const testing::Delivery wire_ = testing::OverTheWire(kNumDrawnTokens);
  const EngineOptions even_ = {.now = testing::EvenClock()};
};

TEST_F(RejectionTest, GreedyTokensAreThoseOfTheKeyedDrawForAnyProposals) {
  const Results truth = Generate(MixedRequests(kKeyedDraw, 0), none_, even_);
  const std::vector<GenerationRequest> requests = MixedRequests(kRejectionSampling, 0);
  EXPECT_EQ(Generate(requests, none_, even_), truth);
  SamplingProposer wrong(testing::HashDistribution(kNumDrawnTokens), {});
  for (const Members& members : std::vector<Members>{{&tree_}, {&chain_}, {&wrong}, {&ngram_}, {&ngram_, &tree_}}) {
    InProcessProposers client(members, wire_);
    EXPECT_EQ(Generate(requests, client, even_), truth);
  }
  InProcessProposers late({&tree_, &ngram_}, wire_);
  late.set_delay(1);
  EXPECT_EQ(Generate(requests, late, even_), truth);
  InProcessProposers tight({&tree_}, wire_);
  EXPECT_EQ(Generate(requests, tight, {.num_blocks = 7, .now = testing::EvenClock()}), truth);
  EXPECT_GT(stats_.num_preemptions, 0);
}

TEST_F(RejectionTest, SampledChainsAndTreesAreAccepted) {
  for (SamplingProposer* proposer : {&chain_, &tree_}) {
    InProcessProposers client({proposer}, wire_);
    const Results results = Generate({Rejecting("import os\nimport sys\n", 0.8f, 100)}, client, even_);
    EXPECT_EQ(results.begin()->second.token_ids.size(), 100);
    EXPECT_GT(stats_.proposers[0].num_accepted, 10);
    EXPECT_LT(stats_.num_steps, 90);
  }
}

TEST_F(RejectionTest, GuessesMeetSampledChildrenAtOneNode) {
  InProcessProposers client({&ngram_, &tree_}, wire_);
  const Results results = Generate({Rejecting("x = 1\nx = 1\nx = 1\nx = 1\n", 0.8f, 100)}, client, even_);
  EXPECT_EQ(results.begin()->second.token_ids.size(), 100);
  // How many depends on the text, and so on the processor.
  EXPECT_GT(stats_.proposers[0].num_accepted, 5);
  EXPECT_GT(stats_.proposers[1].num_accepted, 5);
}

TEST_F(RejectionTest, SequencesOfTheKeyedDrawKeepTheirTokensBesideIt) {
  const std::vector<GenerationRequest> keyed = MixedRequests(kKeyedDraw, 0.8f);
  const Results truth = Generate(keyed, none_, even_);
  std::vector<GenerationRequest> requests = keyed;
  for (GenerationRequest& request : MixedRequests(kRejectionSampling, 0.8f)) {
    request.ticket += 100;
    request.request_id += "r";
    requests.push_back(std::move(request));
  }
  InProcessProposers client({&tree_, &ngram_}, wire_);
  const Results results = Generate(requests, client, even_);
  EXPECT_EQ(results.size(), requests.size());
  for (const auto& [key, result] : truth) EXPECT_EQ(results.at(key), result);
  EXPECT_NE(results.at({101, 0}).token_ids, truth.at({1, 0}).token_ids);
}

TEST_F(RejectionTest, WithoutProposersASeedDecides) {
  std::vector<GenerationRequest> requests = MixedRequests(kRejectionSampling, 0.8f);
  const Results truth = Generate(requests, none_, even_);
  for (GenerationRequest& request : requests) request.sampling.coin_nonce += 9;  // counts only with proposers
  EXPECT_EQ(Generate(requests, none_, {.config = {.max_running_samples = 1}}), truth);
  EXPECT_EQ(truth.at({2, 0}).logprobs.size(), 40);
}

TEST_F(RejectionTest, WithoutRowsTheRootsChildrenAreStillTested) {
  // One row per step, which is the root's.
  const EngineOptions narrow = {.config = {.max_running_samples = 1, .max_step_rows = 1}, .now = testing::EvenClock()};
  const GenerationRequest request = Rejecting("import os\nimport sys\n", 0.8f, 60);
  const Results untested = Generate({request}, none_, narrow);
  InProcessProposers client({&tree_}, wire_);
  const Results tested = Generate({request}, client, narrow);
  EXPECT_EQ(stats_.proposers[0].num_proposed, 0);
  EXPECT_EQ(tested.begin()->second.token_ids.size(), 60);
  EXPECT_NE(tested, untested) << "the children and their coins decide";
}

TEST_F(RejectionTest, ConditionsOfTheRequestHold) {
  InProcessProposers client({&tree_, &ngram_}, wire_);
  GenerationRequest request = Rejecting("for i in range(10):\n    print(i)\n", 1, 40);
  request.num_samples = 4;
  request.banned_token_ids = {11, 258, 300};
  request.stop.stop_token_ids = {262, 267, 290, 400, 13, 15};
  request.stop.min_tokens = 20;
  const Results results = Generate({request}, client, even_);
  ASSERT_EQ(results.size(), 4);
  for (const auto& [key, result] : results) {
    EXPECT_GT(result.token_ids.size(), 20);
    EXPECT_LE(result.token_ids.size(), 40);
    for (const int32_t banned : request.banned_token_ids) EXPECT_THAT(result.token_ids, Not(Contains(banned)));
    for (size_t i = 0; i + 1 < result.token_ids.size(); ++i) {
      EXPECT_THAT(request.stop.stop_token_ids, Not(Contains(result.token_ids[i]))) << "at " << i;
    }
  }
  EXPECT_NE(results.at({request.ticket, 0}).token_ids, results.at({request.ticket, 1}).token_ids);
}

}  // namespace
}  // namespace foretoken::verifier
