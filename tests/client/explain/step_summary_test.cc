// SPDX-License-Identifier: Apache-2.0
// If these tests fail, `foretoken explain` shows wrong sums over the steps of a request.
#include "client/explain/step_summary.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/step_reports.h"

namespace foretoken::client {
namespace {

using testing::BranchingReport;
using testing::MakeReport;

TEST(StepsSummary, AddsUpStepsTreesAndTimes) {
  const foretoken::v1::StepReport prompt = MakeReport(10, 300, "");
  foretoken::v1::StepReport plain = MakeReport(14, 346, "a");
  plain.set_num_lost(1);
  testing::AddProposer("ngram", 340, 0, plain);
  EXPECT_EQ(ToText(Summarise(
                std::vector{prompt, BranchingReport(), MakeReport(13, 344, "bc", {{'b', -1, .5f, .5f}}, {0}), plain})),
            R"(6 tokens in 3 steps: 2.00 a step, expected 1.77; 1 more for the prompt; lost reports: 1
21.4 ms: 84.1 % forward, 9.3 % draw, 4.7 % host, 1.9 % waiting; steps took 1.00 x the predicted time
accepted at depth 1: 2 of 2, 2: 1 of 1, 3: 0 of 1
6 of 9 guessed nodes had a row; 1 of the others would have been right

proposer           guessed   planned  accepted  late trees
draft                    4         3         2           1
ngram                    5         3         1           1
)");
}

TEST(StepsSummary, OfPlainDecodingHasNoTreeLines) {
  EXPECT_EQ(ToText(Summarise(std::vector{MakeReport(1, 9, "a")})),
            "1 tokens in 1 steps: 1.00 a step, expected 1.00\n"
            "5.2 ms: 85.7 % forward, 9.5 % draw, 4.8 % host, 0.0 % waiting; steps took 1.00 x the predicted time\n");
  EXPECT_EQ(ToText(Summarise(std::vector<v1::StepReport>())), "no step emitted a token\n");
}

}  // namespace
}  // namespace foretoken::client
