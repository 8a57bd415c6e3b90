// SPDX-License-Identifier: Apache-2.0
// Verification rules, row choice, merging and late trees together: whole generations, enumerated, for each combination
// that the server can meet. If this test fails, rejection-sampled outputs do not follow the model's distribution under
// some load or with some proposers.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/exact/small_serving.h"
#include "tests/exact/walk_distribution.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/distributions/small_distribution.h"

namespace foretoken::testing {
namespace {

using speculation::TokenTree;

constexpr Arrival kArrivals[] = {Arrival::kFresh,  Arrival::kLateByOne, Arrival::kLateByTwo,
                                 Arrival::kDeeper, Arrival::kOnce,      Arrival::kRestarted};
constexpr SmallRule kRules[] = {SmallRule::kKeyedDraw, SmallRule::kRejectionSampling};
constexpr int32_t kAllRows = 100;

struct Distributions {
  Distributions(const PathNumbering& paths, uint32_t seed)
      : random(seed),
        target(SmallDistribution::Random(paths, DistributionKind::kDense, random)),
        first(SmallDistribution::Random(paths, DistributionKind::kDense, random)),
        second(SmallDistribution::Random(paths, DistributionKind::kDense, random)) {}

  RandomValues random;
  SmallDistribution target, first, second;
};

// Returns the error over whole generations. Checks that no generation reads a coin twice.
double ErrorOf(const SmallServing& serving) {
  return DistributionOf(serving.target,
                        [&](Branches& branches) {
                          SmallGeneration generation(serving, branches);
                          const std::vector<int32_t> emitted = generation.Run();
                          FT_CHECK(generation.num_reused_coins() == 0);
                          return emitted;
                        })
      .Error();
}

// Checks every rule with every row budget, and last with the learned budget.
void ExpectExact(SmallServing serving, const std::string& name) {
  for (const SmallRule rule : kRules) {
    serving.rule = rule;
    for (const int32_t budget : {0, 1, 2, kAllRows}) {
      // The rows of a tree do not matter under a keyed draw, so one budget is enough.
      if (rule == SmallRule::kKeyedDraw && budget != 2) continue;
      serving.row_budget = [budget](const TokenTree&) { return budget; };
      EXPECT_LE(ErrorOf(serving), kExact) << name << ", rule " << static_cast<int>(rule) << ", " << budget << " rows";
    }
    if (rule == SmallRule::kKeyedDraw) continue;
    serving.row_budget = {};
    EXPECT_LE(ErrorOf(serving), kExact) << name << ", rule " << static_cast<int>(rule) << ", learned rows";
  }
}

std::string NameOf(Arrival arrival) { return "arrival " + std::to_string(static_cast<int>(arrival)); }

TEST(PairingDistribution, OneProposerIsExactForEveryArrivalOfTrees) {
  const Distributions distributions({.num_tokens = 2, .max_len = 3}, 1);
  for (const Arrival arrival : kArrivals) {
    for (const size_t num_children : {1, 2}) {
      ExpectExact(
          {.target = distributions.target,
           .proposers = {{.distribution = &distributions.first, .num_children = num_children, .arrival = arrival}}},
          NameOf(arrival));
    }
  }
}

// Pairs every arrival with the next one. The second proposer samples or guesses.
void ExpectMergedExact(const Distributions& distributions) {
  for (size_t i = 0; i < std::size(kArrivals); ++i) {
    const Arrival first = kArrivals[i], second = kArrivals[(i + 1) % std::size(kArrivals)];
    for (const Drawing drawing : {Drawing::kSampled, Drawing::kBest}) {
      ExpectExact({.target = distributions.target,
                   .proposers = {{.distribution = &distributions.first, .arrival = first},
                                 {.distribution = &distributions.second, .drawing = drawing, .arrival = second}}},
                  NameOf(first) + " and " + NameOf(second));
    }
  }
}

TEST(PairingDistribution, MergedProposersAreExactForEveryArrivalOfTrees) {
  ExpectMergedExact(Distributions({.num_tokens = 2, .max_len = 3}, 2));
  // With two tokens a rejection leaves one token. With three it may leave two, and then the second proposer's test
  // matters.
  for (uint32_t seed = 3; seed < 9; ++seed) ExpectMergedExact(Distributions({.num_tokens = 3, .max_len = 2}, seed));
}

// A planner that reads the drawn tree: it gives rows only if the last token was likely.
int32_t RowsIfLastIsLikely(const TokenTree& tree) {
  return tree.num_nodes() > 0 && tree.nodes.back().chance > 0.9f ? kAllRows : 0;
}

// The first token is certain. The draft tosses a fair coin for the second token. After token 1 no third token is
// likely, so the planner gives no row. If the proposer then draws again, the second token was selected by its own
// value.
TEST(PairingDistribution, RowsThatDependOnTheDrawnTreeAreDetectedIfItIsDrawnAgain) {
  const PathNumbering paths{.num_tokens = 2, .max_len = 4};
  const std::vector<double> certain = {1, 0}, target_row = {.7, .3}, draft_row = {.5, .5};
  SmallDistribution target = SmallDistribution::Constant(paths, target_row),
                    draft = SmallDistribution::Constant(paths, draft_row);
  const auto set = [](SmallDistribution& distribution, std::vector<int32_t> path, const std::vector<double>& row) {
    std::copy(row.begin(), row.end(), distribution.At(path).begin());
  };
  set(target, {}, certain);
  set(draft, {}, certain);
  set(draft, {0, 0}, certain);
  SmallServing serving = {.target = target, .proposers = {{.distribution = &draft, .arrival = Arrival::kRestarted}}};
  serving.depth = 3;
  serving.row_budget = RowsIfLastIsLikely;
  EXPECT_GT(ErrorOf(serving), 0.1);
  // One fault alone does no harm: rows by the drawn tree while the tree is kept, or always a new tree.
  serving.proposers[0].arrival = Arrival::kFresh;
  EXPECT_LE(ErrorOf(serving), kExact);
  serving.proposers[0].arrival = Arrival::kRestarted;
  serving.row_budget = [](const TokenTree&) { return 0; };
  EXPECT_LE(ErrorOf(serving), kExact);
}

TEST(PairingDistributionLong, AllArrivalsOfTwoProposersAreExact) {
  const Distributions distributions({.num_tokens = 2, .max_len = 3}, 3);
  for (const Arrival first : kArrivals) {
    for (const Arrival second : kArrivals) {
      for (const Drawing drawing : {Drawing::kSampled, Drawing::kKeyed, Drawing::kBest}) {
        ExpectExact({.target = distributions.target,
                     .proposers = {{.distribution = &distributions.first, .arrival = first},
                                   {.distribution = &distributions.second, .drawing = drawing, .arrival = second}}},
                    NameOf(first) + " and " + NameOf(second));
      }
    }
  }
}

}  // namespace
}  // namespace foretoken::testing
