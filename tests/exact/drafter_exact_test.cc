// SPDX-License-Identifier: Apache-2.0
// A drafter that reads the target's hidden states behind the engine, with features that come in time, late, or only of
// later positions. If this test fails, a drafter changes a client's tokens, or saves no steps.
#include <functional>

#include "gtest/gtest.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/over_the_wire.h"
#include "tests/testing/models/demo_drafters.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::InProcessProposers;
using testing::Results;

struct Kind {
  const char* name;
  proposer::Drafter (*load)();
  int64_t min_accepted = 0;  // with features that come for ten steps only
  bool guesses_far = false;  // so that trees that come late are of use
  int64_t min_sampled = 0;   // accepted under rejection sampling
  bool is_short = false;     // few requests, through the variants of features
};

class DrafterExactTest : public testing::EngineFixture, public ::testing::WithParamInterface<Kind> {
 protected:
  std::vector<GenerationRequest> Requests(bool is_short = false) {
    std::vector<GenerationRequest> requests;
    for (const float temperature : is_short ? std::vector{0.0f, 0.8f} : std::vector{0.0f, 0.8f, 1.0f}) {
      for (const char* prompt : {"def add(a, b):\n", "import os\n\n\nclass Path:\n    def __init__(self"}) {
        requests.push_back(Request(prompt, temperature));
        requests.back().sampling.top_p = temperature == 1 ? 0.9f : 1;
        requests.back().num_samples = is_short ? 1 : 2;
        requests.back().speculation.mode = SpeculationMode::kAlways;  // no plain steps for trials of asking
      }
    }
    return requests;
  }

  struct Variant {
    const char* name;
    int delay = 0;  // of trees, in steps
    EngineOptions options = {};
    std::function<void(int step, InProcessProposers& proposers)> before_step = nullptr;
  };
};

TEST_P(DrafterExactTest, EveryRequestGetsTheTokensItGetsWithoutIt) {
  const std::vector<GenerationRequest> requests = Requests(GetParam().is_short);
  InProcessProposers none;
  const Results truth = Generate(requests, none);
  std::vector<Variant> variants = {
      {.name = "in time"},
      {.name = "features in every third step",
       .before_step = [](int step, InProcessProposers& it) { it.set_gives_features(step % 3 == 0); }},
      {.name = "no features after step 10",
       .before_step = [](int step, InProcessProposers& it) { it.set_gives_features(step < 10); }},
      {.name = "trees three steps late", .delay = 3},
      {.name = "dies and returns", .before_step = [](int step, InProcessProposers& it) { it.set_dead(step % 7 < 3); }},
      {.name = "preempted", .options = {.num_blocks = 20}},
      {.name = "arriving", .options = {.config = {.max_running_samples = 3}, .arrival_seed = 4}}};
  if (GetParam().is_short) variants.resize(3);
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    testing::DrivenDraft drafter(GetParam().load(), {.max_grown_nodes = 64});
    InProcessProposers proposers({&drafter}, testing::OverTheWire(4096));
    proposers.set_delay(variant.delay);
    EngineOptions options = variant.options;
    options.now = testing::EvenClock();
    const auto before_step = [&](int step) {
      if (variant.before_step) variant.before_step(step, proposers);
    };
    EXPECT_EQ(Generate(requests, proposers, options, before_step), truth);
    if (variant.delay == 0 || GetParam().guesses_far) {
      EXPECT_GT(stats_.proposers[0].num_proposed, 0);
      EXPECT_GE(stats_.proposers[0].num_accepted, GetParam().min_accepted);
    }
    EXPECT_EQ(stats_.num_preemptions > 0, options.num_blocks == 20);
  }
}

TEST_P(DrafterExactTest, DraftsForRejectionSampling) {
  std::vector<GenerationRequest> requests = Requests(GetParam().is_short);
  for (GenerationRequest& request : requests) {
    request.verification = kernels::VerificationRule::kRejectionSampling;
  }
  testing::DrivenDraft drafter(GetParam().load(), {.max_grown_nodes = 64});
  InProcessProposers proposers({&drafter}, testing::OverTheWire(4096));
  Generate(requests, proposers, {.now = testing::EvenClock()});
  EXPECT_GE(stats_.proposers[0].num_accepted, GetParam().min_sampled);
  EXPECT_GT(stats_.proposers[0].num_proposed, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DrafterExactTest,
    ::testing::Values(
        Kind{.name = "Eagle3",
             .load = testing::DemoEagle3,
             .min_accepted = 12 * 40 / 8,
             .guesses_far = true,
             .min_sampled = 12 * 40 / 4},
        Kind{.name = "PEagle", .load = testing::DemoPEagle, .min_accepted = 12, .min_sampled = 12 * 40 / 4},
        Kind{.name = "Medusa", .load = testing::DemoMedusa, .min_accepted = 4, .is_short = true},
        Kind{.name = "MlpSpeculator", .load = testing::DemoMlpSpeculator, .min_accepted = 4, .is_short = true},
        Kind{.name = "RandomDflash", .load = testing::RandomDflash, .is_short = true},
        Kind{.name = "RandomDspark", .load = testing::RandomDspark, .is_short = true},
        Kind{.name = "RandomEagle", .load = testing::RandomEagle, .is_short = true}),
    [](const auto& kind) { return kind.param.name; });

using Eagle3ExactTest = DrafterExactTest;

TEST_F(Eagle3ExactTest, AStepEmitsFarMoreThanAToken) {
  testing::DrivenDraft drafter(testing::DemoEagle3(), {.max_grown_nodes = 64});
  InProcessProposers proposers({&drafter}, testing::OverTheWire(4096));
  Generate(Requests(), proposers, {.now = testing::EvenClock()});
  EXPECT_GT(stats_.proposers[0].num_accepted, 12 * 40 * 6 / 10);
}

}  // namespace
}  // namespace foretoken::verifier
