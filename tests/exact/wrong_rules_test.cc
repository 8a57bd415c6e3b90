// SPDX-License-Identifier: Apache-2.0
// Rules that the suite must reject: every known way to lose exactness, under the same check that the right rules pass.
// If a test fails, the suite would miss such a fault in the server.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/exact/random_distributions.h"
#include "tests/exact/walk_distribution.h"
#include "tests/reference/wrong_drafts.h"
#include "tests/reference/wrong_walks.h"
#include "tests/testing/distributions/small_distribution.h"
#include "tests/testing/distributions/small_proposer.h"

namespace foretoken::testing {
namespace {

using reference::Distribution;
using speculation::TokenTree;

// The error of the right rule with trees that were changed on their way.
template <typename Change>
double ErrorOfChanged(const SmallDistribution& target, const SmallProposer& proposer, const Change& change) {
  return DistributionOf(target,
                        [&](Branches& branches) {
                          const TokenTree tree = change(DrawTree(proposer, {}, branches));
                          return Emit(target, {}, tree, AllRows(tree), branches, ByRejection());
                        })
      .Error();
}

TEST(WrongRules, TheLikeliestChildrenPassedOffAsSamplesAreCaught) {
  const Errors errors = OverRandomDistributions([](const SmallDistribution& target, const SmallDistribution& draft) {
    return ErrorOfChanged(target, Full(draft, 2, 2, Drawing::kBest),
                          [&](TokenTree tree) { return reference::ClaimSampled(std::move(tree), draft); });
  });
  EXPECT_TRUE(Covers(errors, .16, .35));
}

TEST(WrongRules, ASampledChildDroppedForItsOwnValueIsCaught) {
  const Errors errors = OverRandomDistributions([](const SmallDistribution& target, const SmallDistribution& draft) {
    return ErrorOfChanged(target, Full(draft, 2, 2),
                          [&](const TokenTree& tree) { return reference::DropUnlikely(tree, 0.2); });
  });
  EXPECT_TRUE(Covers(errors, .07, .10));
}

TEST(WrongRules, ATruncatedDistributionSentForAWholeOneIsCaught) {
  const auto error_of = [](const SmallDistribution& target, const SmallDistribution& draft) {
    return ErrorOfChanged(target, Full(draft, 2, 2),
                          [&](TokenTree tree) { return reference::SendTruncated(std::move(tree), 2); });
  };
  const Errors errors = OverRandomDistributions(error_of);
  EXPECT_TRUE(Covers(errors, .03, .09));
  // If the children are sampled from the sent distribution, there is no error.
  const Errors none = OverRandomDistributions([&](const SmallDistribution& target, const SmallDistribution& draft) {
    return error_of(target, Truncated(draft, 2));
  });
  EXPECT_LE(none.most, kExact);
}

TEST(WrongRules, AResidualMadeOfASpikeIsCaught) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 1};
  const std::vector<double> target_row = {.6, .3, .1}, draft_row = {.2, .2, .6};
  const SmallDistribution target = SmallDistribution::Constant(paths, target_row),
                          draft = SmallDistribution::Constant(paths, draft_row);
  const std::vector<SmallProposer> proposers = {Full(draft, 1, 1)};
  const EmittedDistribution distribution = DistributionOf(target, proposers, AllRows, reference::SpikeResidual());
  EXPECT_NEAR(distribution.FirstToken(0), 1.6 / 3, 1e-6);
  EXPECT_NEAR(distribution.FirstToken(1), 1.1 / 3, 1e-6);
  EXPECT_NEAR(distribution.FirstToken(2), .1, 1e-6);
  EXPECT_GT(distribution.Error(), .06);
}

TEST(WrongRules, ATreeGivenUpForATokenDrawnLaterIsCaught) {
  // After token 1 every next token is unlikely.
  const PathNumbering paths{.num_tokens = 2, .max_len = 2};
  const std::vector<double> target_row = {.7, .3}, draft_row = {.5, .5}, sure = {1, 0};
  const SmallDistribution target = SmallDistribution::Constant(paths, target_row);
  SmallDistribution draft = SmallDistribution::Constant(paths, draft_row);
  std::copy(sure.begin(), sure.end(), draft.At(std::vector<int32_t>{0}).begin());
  const EmittedDistribution distribution = DistributionOf(target, [&](Branches& branches) {
    const TokenTree tree = reference::GiveUpIfLastUnlikely(DrawTree(Full(draft, 2, 1), {}, branches), 0.9);
    return Emit(target, {}, tree, AllRows(tree), branches, ByRejection());
  });
  EXPECT_NEAR(distribution.FirstToken(0), .85, 1e-7);
  EXPECT_NEAR(distribution.FirstToken(1), .15, 1e-7);
}

TEST(WrongRules, TheDraftsNoiseUsedAgainForTheResidualIsCaught) {
  const Errors errors = OverRandomDistributions([](const SmallDistribution& target, const SmallDistribution& draft) {
    const Distribution target_distribution = reference::Normalised({target.At({}).begin(), target.At({}).end()});
    const Distribution draft_distribution = reference::Normalised({draft.At({}).begin(), draft.At({}).end()});
    return DistributionOf(target,
                          [&](Branches& branches) -> std::vector<int32_t> {
                            const int32_t drafted = branches.Choose(draft_distribution);
                            EnumeratedCoins coins(branches);
                            coins.Begin(0);
                            if (coins.Accept(target_distribution[drafted], draft_distribution[drafted]))
                              return {drafted};
                            const Distribution residual =
                                reference::Residual(1, target_distribution, draft_distribution);
                            return {reference::DrawWithTheDraftsNoise(residual, draft_distribution, drafted, branches)};
                          })
        .Error();
  });
  EXPECT_GT(errors.mean, 1e-2);
  EXPECT_GT(errors.most, 5e-2);
}

// Returns the errors of a wrong walk over right drafts.
template <typename Walk>
Errors OfWalk(const Walk& walk, int32_t depth, size_t num_children, Drawing drawing = Drawing::kSampled) {
  return OverRandomDistributions([&](const SmallDistribution& target, const SmallDistribution& draft) {
    const std::vector<SmallProposer> proposers = {Full(draft, depth, num_children, drawing)};
    return DistributionError(target, proposers, AllRows, walk);
  });
}

TEST(WrongRules, ATokenOfTheTailTileIsCaught) { EXPECT_GT(OfWalk(reference::DrawsFromTailTile(), 1, 1).least, 1e-3); }

TEST(WrongRules, RowsOfATreeSlicedAsOfAChainAreCaught) {
  EXPECT_GT(OfWalk(reference::RowsSlicedAsOfAChain(), 2, 2).mean, 1e-2);
  EXPECT_LE(OfWalk(reference::RowsSlicedAsOfAChain(), 2, 1).most, kExact);  // right for a chain
}

TEST(WrongRules, RanksThatDisagreeAboutTheSampleAreCaught) {
  const auto error_of = [](bool draws_once) {
    return OverRandomDistributions([=](const SmallDistribution& target, const SmallDistribution&) {
      return DistributionOf(target,
                            [&](Branches& branches) -> std::vector<int32_t> {
                              const int32_t said = branches.Choose(target.At({}));
                              // The next token reads the K/V of a rank that drew its own token.
                              const int32_t seen = draws_once ? said : branches.Choose(target.At({}));
                              return {said, branches.Choose(target.At(std::vector<int32_t>{seen}))};
                            })
          .Error();
    });
  };
  EXPECT_GT(error_of(false).least, 1e-2);
  EXPECT_LE(error_of(true).most, kExact);
}

TEST(WrongRules, ARejectedPointThatKeepsItsChanceIsCaught) {
  EXPECT_GT(OfWalk(reference::RejectedPointStays(), 1, 1, Drawing::kBest).least, 1e-3);
}

TEST(WrongRules, ADraftNotRenormalisedAfterARejectionIsCaught) {
  EXPECT_GT(OfWalk(reference::DraftNotRenormalised(), 1, 2).mean, 1e-3);
  EXPECT_LE(OfWalk(reference::DraftNotRenormalised(), 2, 1).most, kExact);  // right without siblings
}

TEST(WrongRules, ProposersTestedAgainstTheirMixtureAreCaught) {
  const Errors errors = OverRandomDistributions([](const SmallDistribution& target, const SmallDistribution& draft) {
    const SmallDistribution other = Truncated(target, 2);
    const std::vector<SmallProposer> proposers = {Full(draft, 1, 1), Full(other, 1, 1)};
    EXPECT_LE(DistributionError(target, proposers, AllRows, ByRejection()), kExact);
    return DistributionError(target, proposers, AllRows, reference::MixtureOfProposers());
  });
  EXPECT_GT(errors.mean, 1e-2);
}

// Proposers must not share noise: here the second proposer's token follows from the first one's.
TEST(WrongRules, ProposersThatSampleWithTheSameNoiseAreCaught) {
  const Errors errors = OverRandomDistributions([](const SmallDistribution& target, const SmallDistribution& draft) {
    return DistributionOf(target,
                          [&](Branches& branches) {
                            const TokenTree tree = DrawTree(Full(draft, 1, 1), {}, branches);
                            const TokenTree merged = speculation::Merge(std::vector<TokenTree>{tree, tree});
                            return Emit(target, {}, merged, AllRows(merged), branches, ByRejection());
                          })
        .Error();
  });
  EXPECT_GT(errors.mean, 1e-3);
}

}  // namespace
}  // namespace foretoken::testing
