// SPDX-License-Identifier: Apache-2.0
// A prediction followed through an output that keeps it, changes it, moves parts of it, or ignores it. If this test
// fails, a client's prediction saves fewer steps than it could, or guesses form an invalid tree.
#include "verifier_service/request/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "tests/testing/cases/random_values.h"

namespace foretoken::verifier {
namespace {

using speculation::TokenTree;
using testing::RandomValues;
using PredictedTokens = std::vector<int32_t>;

constexpr int32_t kMaxNodes = 32;
constexpr int32_t kNoLimit = 1 << 20;

PredictedTokens Counting(int32_t from, int32_t count) {
  PredictedTokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

PredictedTokens Joined(const std::vector<PredictedTokens>& parts) {
  PredictedTokens all;
  for (const PredictedTokens& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

void Say(const PredictedTokens& output, PredictionFollower& follower) {
  for (size_t size = 1; size <= output.size(); ++size) follower.Append(std::span(output).first(size));
}

// Returns the most likely child of the root.
std::optional<int32_t> BestGuess(const PredictionFollower& follower) {
  const TokenTree tree = follower.Guess(kMaxNodes, 1);
  std::optional<int32_t> best;
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    if (tree.nodes[node].parent != speculation::kRootParent) continue;
    if (!best.has_value() || tree.nodes[node].chance > tree.nodes[*best].chance) best = node;
  }
  if (best.has_value()) return tree.nodes[*best].token_id;
  return std::nullopt;
}

std::optional<int32_t> BestGuessAfter(const Prediction& prediction, const PredictedTokens& output) {
  PredictionFollower follower(prediction);
  Say(output, follower);
  return BestGuess(follower);
}

// Returns the number of steps for the output if every guess is verified.
int NumSteps(const Prediction& prediction, const PredictedTokens& output) {
  PredictionFollower follower(prediction);
  int num_steps = 0;
  for (size_t said = 0; said < output.size(); ++num_steps) {
    const TokenTree tree = follower.Guess(kMaxNodes, 1);
    const size_t num_right = speculation::MatchedPath(tree, std::span(output).subspan(said)).size();
    const size_t end = std::min(output.size(), said + num_right + 1);
    while (said < end) follower.Append(std::span(output).first(++said));
  }
  return num_steps;
}

TEST(Prediction, IsFollowedFromItsBeginningToItsEnd) {
  const Prediction prediction(Counting(0, 330), kNoLimit);
  PredictionFollower follower(prediction);
  const TokenTree first = follower.Guess(kMaxNodes, 4);
  ASSERT_GT(first.num_nodes(), 16);
  for (int32_t node = 0; node < first.num_nodes(); ++node) {
    EXPECT_EQ(first.nodes[node].token_id, node);
    EXPECT_EQ(first.nodes[node].parent, node - 1);
    EXPECT_EQ(first.nodes[node].proposers, 4);
  }
  EXPECT_EQ(NumSteps(prediction, Counting(0, 330)), 10);  // 33 tokens per step
  Say(Counting(0, 330), follower);
  EXPECT_EQ(follower.Guess(kMaxNodes, 1).num_nodes(), 0);
  EXPECT_EQ(follower.num_accepted(), 330);
  EXPECT_EQ(follower.num_rejected(), 0);
}

TEST(Prediction, ContinuesBehindReplacedInsertedOrOmittedTokens) {
  const Prediction prediction(Counting(0, 100), kNoLimit);
  const PredictedTokens before = Counting(0, 50);
  EXPECT_EQ(BestGuessAfter(prediction, Joined({before, {900}})), 51) << "900 for 50";
  EXPECT_EQ(BestGuessAfter(prediction, Joined({before, {900, 51}})), 52);
  EXPECT_EQ(BestGuessAfter(prediction, Joined({before, {900, 901, 902, 53}})), 54);
  EXPECT_EQ(BestGuessAfter(prediction, Joined({before, {900, 50}})), 51) << "900 before 50";
  EXPECT_EQ(BestGuessAfter(prediction, Joined({before, {70}})), 71) << "50 to 69 are missing";
  for (const PredictedTokens& output :
       {Joined({before, {900}, Counting(51, 49)}), Joined({before, {900}, Counting(50, 50)}),
        Joined({before, Counting(70, 30)})}) {
    EXPECT_LE(NumSteps(prediction, output), 7);
  }
}

TEST(Prediction, AnUnknownTokenMayReplaceAPredictedTokenOrPrecedeIt) {
  const Prediction prediction(Counting(0, 100), kNoLimit);
  PredictionFollower follower(prediction);
  Say(Joined({Counting(0, 50), {900}}), follower);
  const TokenTree tree = follower.Guess(kMaxNodes, 1);
  EXPECT_EQ(speculation::MatchedPath(tree, Counting(51, 1)).size(), 1);
  EXPECT_EQ(speculation::MatchedPath(tree, Counting(50, 1)).size(), 1);
}

TEST(Prediction, FindsTextThatWasMovedFarAway) {
  const Prediction prediction(Counting(0, 2000), kNoLimit);
  const PredictedTokens output = Joined({Counting(0, 50), Counting(1500, 60), Counting(50, 60)});
  EXPECT_EQ(BestGuessAfter(prediction, std::vector(output.begin(), output.begin() + 54)), 1504);
  EXPECT_EQ(BestGuessAfter(prediction, std::vector(output.begin(), output.begin() + 114)), 54);
  EXPECT_LE(NumSteps(prediction, output), 18);
}

TEST(Prediction, PrefersTheLongestEndThenTheNearestPlace) {
  // The prediction has 7 at three places. One of them follows a 6, as in the output.
  const PredictedTokens predicted = {1, 2, 3, 7, 30, 4, 7, 31, 5, 5, 6, 7, 32};
  const Prediction prediction(predicted, kNoLimit);
  EXPECT_EQ(BestGuessAfter(prediction, {1, 2, 7}), 30) << "nearest";
  EXPECT_EQ(BestGuessAfter(prediction, {1, 2, 3, 7, 30, 7}), 31) << "nearest";
  EXPECT_EQ(BestGuessAfter(prediction, {1, 2, 9, 9, 9, 6, 7}), 32) << "longest";
}

TEST(Prediction, ItsChancesGrowWithAgreementAndFallWithMisses) {
  const auto chance_of_first = [](const PredictionFollower& follower) {
    const TokenTree tree = follower.Guess(kMaxNodes, 1);
    return tree.num_nodes() == 0 ? 0.0f : tree.nodes[0].chance;
  };
  const Prediction prediction(Counting(0, 200), kNoLimit);
  PredictionFollower follower(prediction);
  const float at_first = chance_of_first(follower);
  Say(Counting(0, 100), follower);
  EXPECT_GT(chance_of_first(follower), at_first);
  EXPECT_GT(chance_of_first(follower), 0.95f);

  // Every token is in the prediction, but the token after it there is never the next output.
  PredictedTokens output = Counting(0, 1);
  PredictionFollower missing(prediction);
  for (int32_t i = 0; i < 200; ++i) output.push_back(i % 2 == 0 ? 50 : 20);
  Say(output, missing);
  EXPECT_GT(chance_of_first(missing), 0);
  EXPECT_LT(chance_of_first(missing), 0.06f);
}

TEST(Prediction, GuessesNothingIfNothingAgrees) {
  const Prediction prediction(Counting(0, 100), kNoLimit);
  PredictionFollower follower(prediction);
  Say(Counting(1000, 10), follower);
  EXPECT_EQ(follower.Guess(kMaxNodes, 1).num_nodes(), 0);
  EXPECT_EQ(follower.num_accepted(), 0);
  EXPECT_EQ(follower.num_rejected(), 100);
  EXPECT_EQ(NumSteps(prediction, Counting(1000, 80)), 80);
}

TEST(Prediction, EachOfItsTokensCountsOnce) {
  const Prediction prediction(Counting(0, 20), kNoLimit);
  PredictionFollower follower(prediction);
  Say(Joined({Counting(0, 20), Counting(0, 20), Counting(0, 20)}), follower);
  EXPECT_EQ(follower.num_accepted(), 20);
  EXPECT_EQ(follower.num_rejected(), 0);
}

TEST(Prediction, MayBeEmptyOrTooLong) {
  const Prediction none;
  PredictionFollower silent(none);
  Say(Counting(0, 5), silent);
  EXPECT_EQ(silent.Guess(kMaxNodes, 1).num_nodes(), 0);
  EXPECT_EQ(silent.num_rejected(), 0);

  const Prediction cut(Counting(0, 100), 30);
  EXPECT_EQ(cut.token_ids().size(), 30);
  EXPECT_EQ(BestGuessAfter(cut, Counting(0, 29)), 29);
  EXPECT_EQ(BestGuessAfter(cut, Counting(0, 30)), std::nullopt);
  PredictionFollower follower(cut);
  Say(Counting(0, 100), follower);
  EXPECT_EQ(follower.num_accepted(), 30);
  EXPECT_EQ(follower.num_rejected(), 70);
}

TEST(Prediction, ItsTreesAreValidForAnyPredictionAndOutput) {
  RandomValues random(1);
  for (int run = 0; run < 300; ++run) {
    const int32_t num_tokens = 1 + random.Below(4);  // few distinct tokens, so that places agree for a while
    const auto random_tokens = [&](int32_t count) {
      PredictedTokens tokens(static_cast<size_t>(count));
      for (int32_t& token : tokens) token = random.Below(num_tokens);
      return tokens;
    };
    const Prediction prediction(random_tokens(random.Below(300)), kNoLimit);
    const PredictedTokens output = random_tokens(100);
    PredictionFollower follower(prediction);
    for (size_t size = 0; size <= output.size(); ++size) {
      if (size > 0) follower.Append(std::span(output).first(size));
      const int32_t max_nodes = random.Below(20);
      const TokenTree tree = follower.Guess(max_nodes, 2);
      ASSERT_EQ(speculation::Validate(tree, num_tokens, max_nodes), absl::OkStatus());
    }
    EXPECT_LE(follower.num_accepted(), 100);
    EXPECT_EQ(follower.num_accepted() + follower.num_rejected(), prediction.num_tokens());
  }
}

}  // namespace
}  // namespace foretoken::verifier
