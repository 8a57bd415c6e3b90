// SPDX-License-Identifier: Apache-2.0
// What must not pass: every known way to lose exactness, held against the very check that the right rules pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "kernels/keyed_coins.h"
#include "tests/exact/walk_law.h"
#include "tests/reference/wrong_drafts.h"
#include "tests/reference/wrong_walks.h"
#include "tests/testing/random_values.h"
#include "tests/testing/remembered_coins.h"
#include "tests/testing/small_law.h"
#include "tests/testing/small_proposer.h"
#include "tests/testing/tree_shapes.h"

namespace foretoken::testing {
namespace {

using reference::Law;
using speculation::TokenTree;

constexpr int kNumLaws = 40;
const PathNumbering kPaths{.num_tokens = 3, .max_len = 3};

struct Errors {
  double least = 1, mean = 0, most = 0;
};

// Every random law is caught, and their errors are spread over what was measured for others.
bool Covers(const Errors& errors, double least, double most) {
  return errors.least > 1e-2 && errors.least <= least && errors.most >= most;
}

// Of a process over random dense laws.
Errors OverRandomLaws(const std::function<double(const SmallLaw& target, const SmallLaw& draft)>& error_of) {
  RandomValues random(1);
  Errors errors;
  for (int i = 0; i < kNumLaws; ++i) {
    const SmallLaw target = SmallLaw::Random(kPaths, LawKind::kDense, random);
    const SmallLaw draft = SmallLaw::Random(kPaths, LawKind::kDense, random);
    const double error = error_of(target, draft);
    errors.least = std::min(errors.least, error);
    errors.mean += error / kNumLaws;
    errors.most = std::max(errors.most, error);
  }
  return errors;
}

SmallProposer Full(const SmallLaw& law, int32_t depth, size_t num_children, Drawing drawing = Drawing::kSampled) {
  return {.law = &law, .drawing = drawing, .wants_child = [depth, num_children](const NodePlace& place) {
            return static_cast<int32_t>(place.path.size()) < depth && place.siblings.size() < num_children;
          }};
}

// The error of the right rule over a tree that was changed on its way.
template <typename Change>
double ErrorOfChanged(const SmallLaw& target, const SmallProposer& proposer, const Change& change) {
  return LawOf(target,
               [&](Branches& branches) {
                 const TokenTree tree = change(DrawTree(proposer, {}, branches));
                 return Emit(target, {}, tree, AllRows(tree), branches, ByRejection());
               })
      .Error();
}

TEST(WrongRules, TheLikeliestChildrenPassedOffAsSamplesAreCaught) {
  const Errors errors = OverRandomLaws([](const SmallLaw& target, const SmallLaw& draft) {
    return ErrorOfChanged(target, Full(draft, 2, 2, Drawing::kBest),
                          [&](TokenTree tree) { return reference::ClaimSampled(std::move(tree), draft); });
  });
  EXPECT_TRUE(Covers(errors, .16, .35));
}

TEST(WrongRules, ASampledChildDroppedForItsOwnValueIsCaught) {
  const Errors errors = OverRandomLaws([](const SmallLaw& target, const SmallLaw& draft) {
    return ErrorOfChanged(target, Full(draft, 2, 2),
                          [&](const TokenTree& tree) { return reference::DropUnlikely(tree, 0.2); });
  });
  EXPECT_TRUE(Covers(errors, .07, .10));
}

TEST(WrongRules, ATruncatedLawSentForAWholeOneIsCaught) {
  const auto error_of = [](const SmallLaw& target, const SmallLaw& draft) {
    return ErrorOfChanged(target, Full(draft, 2, 2),
                          [&](TokenTree tree) { return reference::SendTruncated(std::move(tree), 2); });
  };
  const Errors errors = OverRandomLaws(error_of);
  EXPECT_TRUE(Covers(errors, .03, .09));
  // Sampled from what is sent, nothing is lost.
  const Errors none = OverRandomLaws(
      [&](const SmallLaw& target, const SmallLaw& draft) { return error_of(target, Truncated(draft, 2)); });
  EXPECT_LE(none.most, kExact);
}

TEST(WrongRules, AResidualMadeOfASpikeIsCaught) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 1};
  const std::vector<double> target_row = {.6, .3, .1}, draft_row = {.2, .2, .6};
  const SmallLaw target = SmallLaw::Constant(paths, target_row), draft = SmallLaw::Constant(paths, draft_row);
  const std::vector<SmallProposer> proposers = {Full(draft, 1, 1)};
  const EmittedLaw law = LawOf(target, proposers, AllRows, reference::SpikeResidual());
  EXPECT_NEAR(law.FirstToken(0), 1.6 / 3, 1e-6);
  EXPECT_NEAR(law.FirstToken(1), 1.1 / 3, 1e-6);
  EXPECT_NEAR(law.FirstToken(2), .1, 1e-6);
  EXPECT_GT(law.Error(), .06);
}

TEST(WrongRules, ATreeGivenUpForATokenDrawnLaterIsCaught) {
  // After token 1 the next one is unlikely, whichever it is.
  const PathNumbering paths{.num_tokens = 2, .max_len = 2};
  const std::vector<double> target_row = {.7, .3}, draft_row = {.5, .5}, sure = {1, 0};
  const SmallLaw target = SmallLaw::Constant(paths, target_row);
  SmallLaw draft = SmallLaw::Constant(paths, draft_row);
  std::copy(sure.begin(), sure.end(), draft.At(std::vector<int32_t>{0}).begin());
  const EmittedLaw law = LawOf(target, [&](Branches& branches) {
    const TokenTree tree = reference::GiveUpIfLastUnlikely(DrawTree(Full(draft, 2, 1), {}, branches), 0.9);
    return Emit(target, {}, tree, AllRows(tree), branches, ByRejection());
  });
  EXPECT_NEAR(law.FirstToken(0), .85, 1e-7);
  EXPECT_NEAR(law.FirstToken(1), .15, 1e-7);
}

TEST(WrongRules, TheDraftsNoiseUsedAgainForTheResidualIsCaught) {
  const Errors errors = OverRandomLaws([](const SmallLaw& target, const SmallLaw& draft) {
    const Law target_law = reference::Normalised({target.At({}).begin(), target.At({}).end()});
    const Law draft_law = reference::Normalised({draft.At({}).begin(), draft.At({}).end()});
    return LawOf(target,
                 [&](Branches& branches) -> std::vector<int32_t> {
                   const int32_t drafted = branches.Choose(draft_law);
                   EnumeratedCoins coins(branches);
                   coins.Begin(0);
                   if (coins.Accept(target_law[drafted], draft_law[drafted])) return {drafted};
                   const Law residual = reference::Residual(1, target_law, draft_law);
                   return {reference::DrawWithTheDraftsNoise(residual, draft_law, drafted, branches)};
                 })
        .Error();
  });
  EXPECT_GT(errors.mean, 1e-2);
  EXPECT_GT(errors.most, 5e-2);
}

// Errors of a wrong walk over right drafts.
template <typename Walk>
Errors OfWalk(const Walk& walk, int32_t depth, size_t num_children, Drawing drawing = Drawing::kSampled) {
  return OverRandomLaws([&](const SmallLaw& target, const SmallLaw& draft) {
    const std::vector<SmallProposer> proposers = {Full(draft, depth, num_children, drawing)};
    return LawError(target, proposers, AllRows, walk);
  });
}

TEST(WrongRules, ATokenOfTheTailTileIsCaught) { EXPECT_GT(OfWalk(reference::DrawsFromTailTile(), 1, 1).least, 1e-3); }

TEST(WrongRules, RowsOfATreeSlicedAsOfAChainAreCaught) {
  EXPECT_GT(OfWalk(reference::RowsSlicedAsOfAChain(), 2, 2).mean, 1e-2);
  EXPECT_LE(OfWalk(reference::RowsSlicedAsOfAChain(), 2, 1).most, kExact);  // a chain's are right
}

TEST(WrongRules, RanksThatDisagreeAboutTheSampleAreCaught) {
  const auto error_of = [](bool draws_once) {
    return OverRandomLaws([=](const SmallLaw& target, const SmallLaw&) {
      return LawOf(target,
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
  const Errors errors = OverRandomLaws([](const SmallLaw& target, const SmallLaw& draft) {
    const SmallLaw other = Truncated(target, 2);
    const std::vector<SmallProposer> proposers = {Full(draft, 1, 1), Full(other, 1, 1)};
    EXPECT_LE(LawError(target, proposers, AllRows, ByRejection()), kExact);
    return LawError(target, proposers, AllRows, reference::MixtureOfProposers());
  });
  EXPECT_GT(errors.mean, 1e-2);
}

// Proposers must not share the noise they sample with: here the second one's token follows from the first one's.
TEST(WrongRules, ProposersThatSampleWithTheSameNoiseAreCaught) {
  const Errors errors = OverRandomLaws([](const SmallLaw& target, const SmallLaw& draft) {
    return LawOf(target,
                 [&](Branches& branches) {
                   const TokenTree tree = DrawTree(Full(draft, 1, 1), {}, branches);
                   const TokenTree merged = speculation::Merge(std::vector<TokenTree>{tree, tree});
                   return Emit(target, {}, merged, AllRows(merged), branches, ByRejection());
                 })
        .Error();
  });
  EXPECT_GT(errors.mean, 1e-3);
}

// What two steps emit: a chain judged by `walk`, then a chain of one by the right rule. Coins are remembered.
template <typename Walk, typename Draft>
EmittedLaw TwoSteps(const SmallLaw& target, const Draft& draft_chain, const Walk& walk) {
  return LawOf(target, [&](Branches& branches) {
    RememberedCoins coins(branches);
    std::vector<int32_t> emitted;
    for (int step = 0; step < 2; ++step) {
      if (static_cast<int32_t>(emitted.size()) >= target.paths().max_len) break;
      const TokenTree tree = draft_chain(emitted, branches);
      const verifier::TestedTree tested = verifier::MakeTestedTree(0, &tree, AllRows(tree));
      const kernels::TreeToAccept to_accept = TreeOf(tested, tree.token_ids.size(), 1 + emitted.size());
      SmallRows rows(target, emitted, to_accept);
      kernels::AcceptedPath path;
      if (step == 0) {
        walk(to_accept, rows, coins, path);
      } else {
        kernels::WalkByRejection(to_accept, rows, coins, path);
      }
      emitted.insert(emitted.end(), path.token_ids.begin(), path.token_ids.end());
    }
    return emitted;
  });
}

struct RightBlock {
  void operator()(const kernels::TreeToAccept& tree, SmallRows& rows, auto& coins, kernels::AcceptedPath& path) const {
    reference::WalkBlock(tree, rows, coins, path);
  }
};

struct RightTokens {
  void operator()(const kernels::TreeToAccept& tree, SmallRows& rows, auto& coins, kernels::AcceptedPath& path) const {
    kernels::WalkByRejection(tree, rows, coins, path);
  }
};

TEST(WrongRules, ABlocksCoinSeenAgainAtALaterIndexIsCaught) {
  const auto error_of = [](const auto& walk) {
    return OverRandomLaws([&](const SmallLaw& target, const SmallLaw& draft) {
      const auto draft_chain = [&](std::span<const int32_t> context, Branches& branches) {
        return DrawTree(Full(draft, context.empty() ? 2 : 1, 1), context, branches);
      };
      return TwoSteps(target, draft_chain, walk).Error();
    });
  };
  EXPECT_GT(error_of(reference::BlockCoinsOfLaterIndices()).mean, 1e-3);
  EXPECT_LE(error_of(RightBlock()).most, kExact);
  EXPECT_LE(error_of(RightTokens()).most, kExact);
}

// A block looks at tokens beyond the one that it rejects. A proposer whose next draft is made of the same noise drafts
// what was looked at. Token by token nothing beyond a rejection was looked at, and this is no fault.
TEST(WrongRules, DraftNoiseOfAnIndexUsedAgainAfterABlockIsCaught) {
  const auto error_of = [](const auto& walk) {
    return OverRandomLaws([&](const SmallLaw& target, const SmallLaw& any) {
      const SmallLaw draft = SmallLaw::Constant(kPaths, any.At({}));  // so the same noise makes the same token
      std::vector<int32_t> by_index;
      const auto draft_chain = [&](std::span<const int32_t> context, Branches& branches) {
        const TokenTree tree = DrawTree(Full(draft, context.empty() ? 3 : 0, 1), {}, branches);
        if (context.empty()) by_index = tree.token_ids;
        TokenTree chain = tree;
        if (!context.empty() && context.size() < by_index.size()) {
          chain = {.token_ids = {by_index[context.size()]}, .parents = {-1}, .chances = {1}, .proposers = {1}};
          chain = reference::ClaimSampled(chain, draft);
        }
        return chain;
      };
      return TwoSteps(target, draft_chain, walk).Error();
    });
  };
  EXPECT_GT(error_of(RightBlock()).mean, 1e-3);
  EXPECT_LE(error_of(RightTokens()).most, kExact);
}

// Coins as a server should not have them: whoever comes first gets the first.
class GlobalCoins {
 public:
  GlobalCoins(uint64_t, uint32_t) {}
  void Begin(uint32_t) {}
  bool Accept(double target_prob, double draft_prob) { return Next() * draft_prob < target_prob; }
  int32_t Draw(std::span<const double> weights) { return kernels::IndexAt(weights, Next()); }

 private:
  static double Next() {
    static std::mt19937 engine(1);
    return engine() * 0x1p-32;
  }
};

// Whether two requests get the same tokens whichever comes first.
template <typename Coins>
bool IsIndependentOfOrder() {
  RandomValues random(7);
  const SmallLaw target = SmallLaw::Random(kPaths, LawKind::kDense, random);
  const auto emit = [&](uint64_t seed) {
    const TokenTree tree;
    const verifier::TestedTree tested = verifier::MakeTestedTree(0, &tree, {});
    std::vector<int32_t> emitted;
    for (int step = 0; step < 3; ++step) {
      const kernels::TreeToAccept to_accept = TreeOf(tested, 0, emitted.size());
      SmallRows rows(target, emitted, to_accept);
      Coins coins(seed, 0);
      kernels::AcceptedPath path;
      kernels::WalkByRejection(to_accept, rows, coins, path);
      emitted.push_back(path.token_ids.at(0));
    }
    return emitted;
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<int32_t> first = emit(seed), second = emit(seed + 1000);
    if (emit(seed + 1000) != second || emit(seed) != first) return false;
  }
  return true;
}

TEST(WrongRules, CoinsFromAGlobalGeneratorAreCaught) {
  EXPECT_FALSE(IsIndependentOfOrder<GlobalCoins>());
  EXPECT_TRUE(IsIndependentOfOrder<kernels::KeyedCoins>());
}

}  // namespace
}  // namespace foretoken::testing
