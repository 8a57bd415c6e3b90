// SPDX-License-Identifier: Apache-2.0
// A draft model behind the engine. If this test fails, a draft model changes a client's tokens, or saves no steps.
#include "gtest/gtest.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/over_the_wire.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::verifier {
namespace {

class DraftProposerExactTest : public testing::EngineFixture {
 protected:
  std::vector<GenerationRequest> Requests() {
    std::vector<GenerationRequest> requests;
    for (const float temperature : {0.0f, 0.8f, 1.0f}) {
      for (const char* prompt : {"def add(a, b):\n", "import os\n\n\nclass Path:\n    def __init__(self"}) {
        requests.push_back(Request(prompt, temperature));
        requests.back().sampling.top_p = temperature == 1 ? 0.9f : 1;
      }
    }
    return requests;
  }
};

TEST_F(DraftProposerExactTest, EveryRequestGetsTheTokensItGetsWithoutIt) {
  testing::InProcessProposers none;
  const std::vector<GenerationRequest> requests = Requests();
  const testing::Results truth = Generate(requests, none);
  for (const int delay : {0, 1, 3}) {
    testing::DrivenDraft draft({.max_grown_nodes = 64});
    testing::InProcessProposers proposers({&draft}, testing::OverTheWire(4096));
    proposers.set_delay(delay);
    EXPECT_EQ(Generate(requests, proposers, {.now = testing::EvenClock()}), truth) << "delay " << delay;
  }
}

TEST_F(DraftProposerExactTest, AStepEmitsMoreThanAToken) {
  testing::DrivenDraft draft;
  testing::InProcessProposers proposers({&draft}, testing::OverTheWire(4096));
  const std::unique_ptr<Engine> engine = MakeEngine(proposers, {.now = testing::EvenClock()});
  for (GenerationRequest& request : Requests()) {
    request.speculation.mode = SpeculationMode::kAlways;  // no plain steps for trials of asking
    ASSERT_TRUE(engine->Submit(engine->Reserve().value(), request).ok());
  }
  while (engine->Step()) continue;
  const EngineStats stats = engine->GetStats();
  ASSERT_FALSE(stats.proposers.empty());
  ASSERT_EQ(stats.proposers[0].proposer, "draft");
  // There are 6 samples of 40 tokens.
  EXPECT_GT(stats.proposers[0].num_accepted, 6 * 40 / 2);
}

}  // namespace
}  // namespace foretoken::verifier
