// SPDX-License-Identifier: Apache-2.0
// A draft model behind the engine. If this test fails, a draft model changes a client's tokens, or saves no steps.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/over_the_wire.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/draft_model.h"
#include "tests/testing/models/tiny_models.h"

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

// Every family drafts for itself. Equal models guess equal tokens, whatever the verifier adds to the draft's context.
class FamilyAsDraft : public testing::EngineFixture, public ::testing::WithParamInterface<const char*> {};

TEST_P(FamilyAsDraft, GuessesTheTokensOfAnEqualTarget) {
  const std::string directory = testing::SourcePath("tests/cases/models/") + GetParam();
  const testing::LoadedModel target = testing::LoadModel(directory);
  Use(*target.transformer);
  const auto vocabulary = static_cast<int32_t>(target.transformer->config().vocab_size);
  std::vector<GenerationRequest> requests;
  for (const uint32_t seed : {1, 2}) {
    requests.push_back(Request("", /*temperature=*/0, /*max_tokens=*/24));
    requests.back().prompt = testing::RandomTokens(40, vocabulary, seed);
    requests.back().stop.ignore_eos = true;
    requests.back().speculation.mode = SpeculationMode::kAlways;
  }
  testing::InProcessProposers none;
  const testing::Results truth = Generate(requests, none);
  testing::DrivenDraft draft(proposer::MakeTransformerDrafter(testing::LoadDraftModel({.other_model = directory})),
                             {.max_grown_nodes = 64});
  testing::InProcessProposers proposers({&draft}, testing::OverTheWire(vocabulary));
  EXPECT_EQ(Generate(requests, proposers, {.now = testing::EvenClock()}), truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 2 * 24 / 2);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyAsDraft, ::testing::ValuesIn(testing::kFamilyModels), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace foretoken::verifier
