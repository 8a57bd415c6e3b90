// SPDX-License-Identifier: Apache-2.0
// What must not pass: every known way to lose exactness, held against the very check that the right rules pass.
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

// The error of the right rule over a tree that was changed on its way.
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
  // Sampled from what is sent, nothing is lost.
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
  // After token 1 the next one is unlikely, whichever it is.
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

// Errors of a wrong walk over right drafts.
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
  EXPECT_LE(OfWalk(reference::RowsSlicedAsOfAChain(), 2, 1).most, kExact);  // a chain's are right
}

TEST(WrongRules, RanksThatDisagreeAboutTheSampleAreCaught) {
  const auto error_of = [](bool draws_once) {
    return OverRandomDistributions([=](const SmallDistribution& target, const SmallDistribution&) {
      return DistributionOf(target,
                            [&](Branches& branches) -> std::vector<int32_t> {
                              const int32_t said = branches.Choose(target.At({}));
                              // The rank whose K/V the next token sees has drawn for itself.
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
  EXPECT_LE(OfWalk(reference::DraftNotRenormalised(), 2, 1).most, kExact);  // right as long as there are no siblings
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

// Proposers must not share the noise they sample with: here the second one's token follows from the first one's.
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
