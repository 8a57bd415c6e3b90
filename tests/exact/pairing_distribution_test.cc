// SPDX-License-Identifier: Apache-2.0
// Rules x planner x merge x late trees: whole generations, enumerated, for each pairing that the server can meet.
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

// The error of whole generations. No coin is looked at twice in any of them.
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

// Every rule and row budget, the learned one last.
void ExpectExact(SmallServing serving, const std::string& name) {
  for (const SmallRule rule : kRules) {
    serving.rule = rule;
    for (const int32_t budget : {0, 1, 2, kAllRows}) {
      // A keyed draw asks no tree anything.
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

TEST(PairingDistribution, OneProposerIsExactHoweverItsTreesArrive) {
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

// Every arrival beside the next one, the second proposer sampling or guessing.
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

TEST(PairingDistribution, MergedProposersAreExactHoweverTheirTreesArrive) {
  ExpectMergedExact(Distributions({.num_tokens = 2, .max_len = 3}, 2));
  // Of two tokens one is left after a rejection; of three there may be more, and the second proposer's test shows.
  for (uint32_t seed = 3; seed < 9; ++seed) ExpectMergedExact(Distributions({.num_tokens = 3, .max_len = 2}, seed));
}

// A planner that looks at the drawn tree: a row only where the last token was likely.
int32_t RowsIfLastIsLikely(const TokenTree& tree) {
  return tree.num_nodes() > 0 && tree.nodes.back().chance > 0.9f ? kAllRows : 0;
}

// The first token is certain. The second is a coin in the draft, and after token 1 the third is not likely, whichever
// it is. Then there is no row, and a proposer that draws again has the second token chosen by what it is.
TEST(PairingDistribution, RowsByWhatWasDrawnAreCaughtWhereItIsDrawnAgain) {
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
  // Either alone does no harm: rows by what was drawn, but the tree is kept; or it is drawn again whatever it was.
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
