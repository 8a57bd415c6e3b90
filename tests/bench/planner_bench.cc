// SPDX-License-Identifier: Apache-2.0
// Measures planning on the engine's thread: the calibrated chances of the trees, and the choice of nodes, for 64
// sequences with trees of 64 nodes. The time is one thread's own; every round has other trees.
//
//   planner_bench
#include <random>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/bench/findings.h"
#include "tests/bench/stopwatch.h"
#include "verifier_service/planner/calibration.h"
#include "verifier_service/planner/planner.h"

ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(bool, short, false, "few rounds");

namespace foretoken::bench {
namespace {

constexpr int32_t kNumSequences = 64;
constexpr int32_t kNumNodes = 64;
constexpr int32_t kMaxRows = 512;

speculation::TokenTree RandomTree(std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.02f, 0.95f);
  speculation::TokenTree tree;
  for (int32_t node = 0; node < kNumNodes; ++node) {
    const auto parent = static_cast<int32_t>(random() % (node + 1)) - 1;
    const float chance = uniform(random);
    tree.Append(
        {.token_id = node, .parent = parent, .chance = chance, .proposers = static_cast<uint32_t>(1 + random() % 7)});
  }
  return tree;
}

int Main() {
  std::mt19937 random(3);
  verifier::Calibration calibration(3);
  verifier::StepCost cost(kMaxRows);
  for (int32_t rows = 1; rows <= kMaxRows; rows += 7) {
    // Rows are cheap, so the planner takes many nodes.
    cost.Observe({.num_rows = rows}, 20.0f + 0.01f * static_cast<float>(rows));
  }
  std::vector<double> chances_us, choice_us, num_chosen;
  const int num_rounds = absl::GetFlag(FLAGS_short) ? 200 : 2000;
  for (int round = 0; round < num_rounds; ++round) {
    std::vector<speculation::TokenTree> trees;
    for (int32_t i = 0; i < kNumSequences; ++i) trees.push_back(RandomTree(random));
    std::vector<verifier::TreeOffer> offers;
    offers.reserve(trees.size());
    chances_us.push_back(
        1e6 * Seconds(1, [&] {
          for (const speculation::TokenTree& tree : trees) {
            offers.push_back({.path_chances = calibration.PathChances(tree), .max_nodes = 32, .num_positions = 500});
          }
        }));
    std::vector<std::vector<int32_t>> chosen;
    choice_us.push_back(1e6 * Seconds(1, [&] {
                          chosen = verifier::ChooseNodes(
                              offers,
                              {.fixed = {.num_rows = kNumSequences, .num_positions = 500 * kNumSequences},
                               .max_rows = kMaxRows,
                               .num_decoding = kNumSequences,
                               .between_ms = 0.5f},
                              cost);
                        }));
    double num_nodes = 0;
    for (const std::vector<int32_t>& nodes : chosen) num_nodes += static_cast<double>(nodes.size());
    num_chosen.push_back(num_nodes);
  }
  Findings findings;
  findings.Add(
      {.what = "choosing among 64 x 64 nodes, median", .value = Median(choice_us), .unit = "us", .at_most = 30});
  findings.Add({.what = "  slowest hundredth", .value = Quantile(choice_us, 0.99), .unit = "us"});
  findings.Add({.what = "  chosen", .value = Median(num_chosen), .unit = "nodes"});
  findings.Add({.what = "calibrated path chances of these, median", .value = Median(chances_us), .unit = "us"});
  findings.Print(absl::GetFlag(FLAGS_json));
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Main();
}
