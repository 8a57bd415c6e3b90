// SPDX-License-Identifier: Apache-2.0
// Step reports from the engine on the demo model. If this test fails, a client that asks for reports gets wrong
// guesses, tokens or times.
#include "verifier_service/engine/report_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/over_the_wire.h"
#include "tests/testing/fakes/sampling_proposer.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using testing::EngineOptions;
using testing::InProcessProposers;
using ::testing::IsEmpty;
using testing::Random;
using testing::Results;

// Checks rules that hold for every report.
void CheckReport(const StepReport& report) {
  const ReportedTree& tree = report.tree;
  const size_t num_nodes = tree.token_ids.size();
  EXPECT_EQ(tree.parents.size(), num_nodes);
  EXPECT_EQ(tree.chances.size(), num_nodes);
  EXPECT_EQ(tree.path_chances.size(), num_nodes);
  EXPECT_EQ(tree.proposers.size(), num_nodes);
  EXPECT_EQ(tree.planned.size(), num_nodes);
  float expected = 1;
  for (size_t node = 0; node < num_nodes; ++node) {
    EXPECT_GT(tree.proposers[node], 0);
    EXPECT_LT(tree.proposers[node], 1u << report.proposers.size());
    if (!tree.planned[node]) continue;
    EXPECT_GT(tree.path_chances[node], 0);
    expected += tree.path_chances[node];
    const int32_t parent = tree.parents[node];
    EXPECT_TRUE(parent == speculation::kRootParent || tree.planned[parent]);
  }
  if (report.draws) {
    EXPECT_NEAR(report.expected_tokens, expected, 1e-3);
  }
  int32_t above = speculation::kRootParent;
  ASSERT_LE(report.accepted.size(), report.token_ids.size());
  for (size_t i = 0; i < report.accepted.size(); ++i) {
    EXPECT_TRUE(tree.planned[report.accepted[i]]);
    EXPECT_EQ(tree.parents[report.accepted[i]], std::exchange(above, report.accepted[i]));
    EXPECT_EQ(tree.token_ids[report.accepted[i]], report.token_ids[i]);
  }
  for (const ReportedProposer& proposer : report.proposers) EXPECT_LE(proposer.position, report.position);
  EXPECT_GT(report.step.times.forward_ms, 0);
  EXPECT_GT(report.step.forecast.step_ms, 0);
  EXPECT_LE(report.num_context_rows, report.step.forecast.num_rows);
  EXPECT_LE(report.step.forecast.num_rows, report.step.row_budget);
  EXPECT_LE(std::ranges::count(tree.planned, true), report.node_budget);
}

class ReportStepTest : public testing::EngineFixture {
 protected:
  GenerationRequest Asking(const std::string& text, float temperature) {
    GenerationRequest request = Request(text, temperature);
    request.speculation.reports_steps = true;
    return request;
  }

  // Checks that the reports add up to each sample's output, and to the number of nodes computed per proposer.
  void CheckReports(const std::vector<GenerationRequest>& requests, const Results& results) {
    for (const GenerationRequest& request : requests) {
      for (int32_t sample = 0; sample < request.num_samples; ++sample) {
        const testing::SampleKey key = {request.ticket, sample};
        std::vector<int32_t> context = request.prompt;
        std::map<std::string, uint64_t> num_planned;
        uint64_t last_step = 0;
        for (const StepReport& report : reports_[key]) {
          CheckReport(report);
          EXPECT_EQ(report.position, context.size());
          EXPECT_GT(report.step.step_idx, std::exchange(last_step, report.step.step_idx));
          context.insert(context.end(), report.token_ids.begin(), report.token_ids.end());
          for (size_t node = 0; node < report.tree.token_ids.size(); ++node) {
            for (size_t i = 0; i < report.proposers.size() && report.tree.planned[node]; ++i) {
              num_planned[report.proposers[i].name] += report.tree.proposers[node] >> i & 1;
            }
          }
        }
        EXPECT_EQ(std::vector<int32_t>(context.begin() + request.prompt.size(), context.end()),
                  results.at(key).token_ids);
        for (const ProposerCount& count : completions_.at(key).proposers) {
          EXPECT_EQ(num_planned[count.proposer], count.num_proposed) << count.proposer;
        }
      }
    }
  }

  // All steps seem to take equally long, so the planner takes every guess.
  const EngineOptions even_ = {.now = testing::EvenClock()};
};

TEST_F(ReportStepTest, ReportsOnlyToRequestsThatAsk) {
  std::vector<GenerationRequest> requests = {Asking("import os\n", 0), Request("import os\n", 0)};
  InProcessProposers random({{"random", Random(1)}});
  const Results results = Generate(requests, random, even_);
  EXPECT_EQ(reports_.size(), 1);
  EXPECT_EQ(reports_[std::make_pair(requests[0].ticket, 0)].size(), 40);
  CheckReports({requests[0]}, results);
}

TEST_F(ReportStepTest, StepsAddUpToTheOutputOfEverySample) {
  std::vector<GenerationRequest> requests = {Asking("def read_config(path):\n", 0.8f), Asking("x = 1\nx = 1\n", 0)};
  requests[0].num_samples = 3;
  InProcessProposers none;
  const Results truth = Generate(requests, none, even_);
  CheckReports(requests, truth);
  for (const StepReport& report : reports_[std::make_pair(requests[1].ticket, 0)]) {
    EXPECT_THAT(report.tree.token_ids, IsEmpty());
    EXPECT_EQ(report.step.forecast.num_tree_rows, 0);
  }

  InProcessProposers two({{"random", Random(2)}, {"oracle", testing::Oracle(testing::WholeTexts(truth, requests))}});
  EXPECT_EQ(Generate(requests, two, even_), truth);
  CheckReports(requests, truth);
  const std::vector<StepReport>& reports = reports_[std::make_pair(requests[1].ticket, 0)];
  int32_t num_prompt_rows = 0;
  for (const auto& [key, of_sample] : reports_) {  // two samples wait until the first has computed the prefix
    if (of_sample[0].step.step_idx == 1) num_prompt_rows += of_sample[0].num_context_rows;
  }
  EXPECT_GT(num_prompt_rows, requests[1].prompt.size());
  EXPECT_EQ(reports[0].step.forecast.num_prompt_rows, num_prompt_rows);
  EXPECT_EQ(reports[0].num_context_rows, requests[1].prompt.size());
  const size_t num_accepted =
      std::accumulate(reports.begin(), reports.end(), size_t{0},
                      [](size_t sum, const auto& report) { return sum + report.accepted.size(); });
  EXPECT_GT(num_accepted, 20);
  EXPECT_EQ(reports[1].proposers[1].name, "oracle");
}

TEST_F(ReportStepTest, TimeWithoutRequestsIsNotBetweenSteps) {
  absl::Time now = absl::UnixEpoch();
  InProcessProposers random({{"random", Random(1)}});
  const std::unique_ptr<Engine> engine = MakeEngine(random, {.now = [&now] { return now += absl::Microseconds(1); }});
  for (int round = 0; round < 3; ++round) {
    now += absl::Hours(1);
    ASSERT_TRUE(engine->Submit(engine->Reserve().value(), Asking("import os\n", 0)).ok());
    while (engine->Step()) continue;
  }
  ASSERT_EQ(reports_.size(), 3);
  for (const auto& [key, reports] : reports_) EXPECT_LT(reports.back().step.forecast.between_ms, 1);
  EXPECT_GT(reports_.rbegin()->second.back().step.forecast.between_ms, 0);
}

TEST_F(ReportStepTest, ATreeThatCameLateShowsWhereItStood) {
  const std::vector<GenerationRequest> requests = {Asking("x = 1\nx = 1\n", 0)};
  InProcessProposers none;
  const Results truth = Generate(requests, none, even_);
  InProcessProposers late({{"oracle", testing::Oracle(testing::WholeTexts(truth, requests))}});
  late.set_delay(1);
  EXPECT_EQ(Generate(requests, late, even_), truth);
  CheckReports(requests, truth);
  int num_late = 0;
  for (const StepReport& report : reports_.begin()->second) {
    for (const ReportedProposer& proposer : report.proposers) num_late += proposer.position < report.position;
  }
  EXPECT_GE(num_late, 5);
}

// A sample's first tree may come while the sample waits for another one to compute their common prompt.
TEST_F(ReportStepTest, ATreeIsNewInTheFirstReportAfterItCameAndInNoOther) {
  std::vector<GenerationRequest> requests = {Asking("def read_config(path):\n", 0.8f)};
  requests[0].num_samples = 3;
  InProcessProposers random({{"random", Random(1)}});
  Generate(requests, random, even_);
  ASSERT_EQ(reports_.size(), 3u);
  for (const auto& [key, reports] : reports_) {
    std::map<uint64_t, int> num_new;  // by the tree's position
    for (const StepReport& report : reports) {
      for (const ReportedProposer& proposer : report.proposers) num_new[proposer.position] += proposer.is_new ? 1 : 0;
    }
    EXPECT_EQ(num_new[requests[0].prompt.size()], 1) << "sample " << key.second;
    for (const auto& [position, times] : num_new) EXPECT_LE(times, 1) << position;
  }
}

TEST_F(ReportStepTest, NodesWithoutARowAreThereButNotPlanned) {
  std::vector<GenerationRequest> requests = {Asking("import os\nimport sys\n", 0)};
  requests[0].speculation.max_tree_nodes = 3;
  InProcessProposers two({{"random", Random(2)}, {"other", Random(3)}});
  const Results results = Generate(requests, two, even_);
  CheckReports(requests, results);
  int num_unplanned = 0;
  for (const StepReport& report : reports_.begin()->second) {
    const auto num_planned = std::count(report.tree.planned.begin(), report.tree.planned.end(), true);
    EXPECT_LE(num_planned, 3);
    EXPECT_EQ(num_planned, report.step.forecast.num_tree_rows);
    num_unplanned += static_cast<int>(report.tree.planned.size()) - static_cast<int>(num_planned);
  }
  EXPECT_GT(num_unplanned, 10);
}

TEST_F(ReportStepTest, IfSlotsRunOutTheReportHasTheNodesWithASlot) {
  std::vector<GenerationRequest> requests = {Asking("x = 1\nx = 1\n", 0), Asking("y = 2\ny = 2\n", 0)};
  for (GenerationRequest& request : requests) request.speculation.max_tree_nodes = 20;
  InProcessProposers two({{"random", Random(2)}, {"other", Random(3)}});
  EngineOptions tight = even_;
  tight.num_blocks = 7;
  CheckReports(requests, Generate(requests, two, tight));
  int num_cut = 0;
  for (const auto& [key, reports] : reports_) {
    for (const StepReport& report : reports) {
      const size_t num_nodes = report.tree.planned.size();
      if (num_nodes <= 20 || std::count(report.tree.planned.begin(), report.tree.planned.end(), true) != 16) continue;
      ++num_cut;  // cut to the slots of a block
      std::vector<size_t> order(num_nodes);
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return report.tree.path_chances[a] > report.tree.path_chances[b]; });
      for (size_t rank = 20; rank < num_nodes; ++rank) {
        EXPECT_FALSE(report.tree.planned[order[rank]]) << "the planner did not choose this node";
      }
    }
  }
  EXPECT_GT(num_cut, 0);
}

// Proposers of which some have no session for any sequence.
class ProposersWithMissing : public InProcessProposers {
 public:
  ProposersWithMissing(std::vector<Member> members, const MissingSessions& missing)
      : InProcessProposers(std::move(members)), missing_(missing) {}
  MissingSessions FindMissing(SequenceId) const override { return missing_; }

 private:
  const MissingSessions missing_;
};

TEST_F(ReportStepTest, AProposerWithoutASessionIsNotAmongTheAskedOnes) {
  GenerationRequest request = Asking("import os\n", 0);
  request.speculation.mode = SpeculationMode::kAlways;
  ProposersWithMissing proposers({{"random", Random(1)}, {"gone", Random(2)}, {"full", Random(3)}},
                                 {.absent = 2, .refusing = 4});
  Generate({request}, proposers, even_);
  for (const StepReport& report : reports_.begin()->second) {
    EXPECT_THAT(report.asked_proposers, ElementsAre("random"));
    EXPECT_THAT(report.absent_proposers, ElementsAre("gone"));
    EXPECT_THAT(report.refusing_proposers, ElementsAre("full"));
    EXPECT_THAT(report.resting_proposers, IsEmpty());
  }
}

TEST_F(ReportStepTest, ARequestThatDoesNotSpeculateAsksNobody) {
  GenerationRequest request = Asking("import os\n", 0);
  request.speculation.mode = SpeculationMode::kOff;
  InProcessProposers random({{"random", Random(1)}});
  Generate({request}, random, even_);
  for (const StepReport& report : reports_.begin()->second) {
    EXPECT_THAT(report.asked_proposers, IsEmpty());
    EXPECT_THAT(report.resting_proposers, IsEmpty());
  }
}

TEST_F(ReportStepTest, UnderRejectionSamplingChancesAreThoseOfRanks) {
  const testing::LogitDistribution distribution = testing::ModelDistribution(testing::SourcePath("deploy/demo/draft"));
  testing::SamplingProposer tree(distribution, {.top_k = 12, .children_by_depth = {3, 2, 1}});
  testing::InProcessProposers client({&tree}, testing::OverTheWire(4093));
  std::vector<GenerationRequest> requests = {Asking("def read_config(path):\n", 0.8f)};
  requests[0].verification = kernels::VerificationRule::kRejectionSampling;
  const Results results = Generate(requests, client, even_);
  CheckReports(requests, results);
  size_t num_accepted = 0;
  for (const StepReport& report : reports_.begin()->second) num_accepted += report.accepted.size();
  EXPECT_GT(num_accepted, 0);
}

}  // namespace
}  // namespace foretoken::verifier
