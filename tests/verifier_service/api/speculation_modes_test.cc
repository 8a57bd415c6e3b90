// SPDX-License-Identifier: Apache-2.0
// Requests with different speculation modes in one batch. If this test fails, a request in mode ALWAYS takes the
// guesses away from the requests beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::InProcessProposers;

class SpeculationModes : public testing::EngineFixture {
 protected:
  GenerationRequest Endless(const std::string& text) {
    GenerationRequest request = Request(text, 0, 900);
    request.stop.ignore_eos = true;
    return request;
  }
  // Returns the number of planned nodes in the last steps of a request with reports.
  int NumPlannedNodes(const GenerationRequest& request, size_t num_steps) const {
    const auto reports = reports_.find({request.ticket, 0});
    if (reports == reports_.end() || reports->second.size() < num_steps) return -1;
    return std::accumulate(reports->second.end() - static_cast<ptrdiff_t>(num_steps), reports->second.end(), 0,
                           [](int sum, const StepReport& report) {
                             return sum + static_cast<int>(std::ranges::count(report.tree.planned, true));
                           });
  }
};

TEST_F(SpeculationModes, ARequestThatAlwaysAsksLeavesTheOthersTheirNodes) {
  const EngineOptions even = {.now = testing::EvenClock()};
  InProcessProposers none;
  GenerationRequest request = Endless("def read_config(path):\n");
  // This run leaves K/V in the prefix cache for the requests below.
  const std::vector<std::vector<int32_t>> truth = testing::WholeTexts(Generate({request}, none, even), {request});
  InProcessProposers slow({{"slow", [&](std::span<const int32_t> context, int32_t) {
                              // Only one right guess, so that the request lasts many steps.
                              speculation::TokenTree tree;
                              if (!testing::GoesOn(truth[0], context)) return tree;
                              testing::AddGuess(truth[0][context.size()], speculation::kRootParent, 0.7f, &tree);
                              return tree;
                            }}});
  request.speculation.reports_steps = true;
  const GenerationRequest companion = Endless("import os\n");
  GenerationRequest greedy = Endless("class Node:\n");
  greedy.speculation.mode = SpeculationMode::kAlways;

  const std::unique_ptr<Engine> engine = MakeEngine(slow, even);
  ASSERT_TRUE(engine->Submit(engine->Reserve().value(), request).ok());
  ASSERT_TRUE(engine->Submit(engine->Reserve().value(), companion).ok());
  const auto is_tried = [&] { return NumPlannedNodes(request, 20) > 0 && NumPlannedNodes(request, 4) == 0; };
  for (int step = 0; step < 300 && !is_tried(); ++step) engine->Step();
  ASSERT_TRUE(is_tried()) << "the policy runs trials";

  engine->Abort(companion.ticket);  // keeps the number of sequences as before
  ASSERT_TRUE(engine->Submit(engine->Reserve().value(), greedy).ok());
  for (int step = 0; step < 50; ++step) engine->Step();
  EXPECT_GT(NumPlannedNodes(request, 40), 20);
  EXPECT_FALSE(completions_.contains({request.ticket, 0}));
}

}  // namespace
}  // namespace foretoken::verifier
