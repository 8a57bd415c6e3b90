// SPDX-License-Identifier: Apache-2.0
// If these tests fail, a draft model's guesses have wrong chances, and the planner verifies the wrong nodes.
#include "proposer_service/draft/chance_model.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::proposer {
namespace {

TEST(ChanceModel, ChancesDescendWithTheScoresAndLeaveRoomForTheRest) {
  const ChanceModel model;
  const std::vector<float> chances = model.Chances(std::vector<float>{0, -1, -5});
  for (size_t i = 1; i < chances.size(); ++i) EXPECT_LT(chances[i], chances[i - 1]);
  EXPECT_GT(model.Chances(std::vector<float>{0, -500}).back(), 0) << "a chance of 0 is no valid chance";
  EXPECT_LT(std::accumulate(chances.begin(), chances.end(), 0.0), 1);
  EXPECT_TRUE(model.Chances({}).empty());
}

// If the model learned from such a score, every later chance would be wrong.
TEST(ChanceModel, ScoresThatAreNoNumbersTeachNothing) {
  const std::vector<float> good = {0, -1, -5};
  ChanceModel model;
  const std::vector<float> before = model.Chances(good);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    const std::vector<float> scores = {0, bad};
    model.Observe(scores, 0);
    model.Observe(scores, 1);
    model.Observe(scores, std::nullopt);
    for (const float chance : model.Chances(scores)) EXPECT_TRUE(chance > 0 && chance <= 1) << chance;
  }
  EXPECT_EQ(model.Chances(good), before);
}

constexpr double kTau = 0.5, kRest = -1;

// Tokens are committed by a distribution of the model's own form. Returns the mean error of its last chances.
double ErrorAfter(int num_trials, ChanceModel& model) {
  testing::RandomValues random(5);
  double error = 0;
  constexpr int kLast = 2000;
  for (int trial = 0; trial < num_trials; ++trial) {
    std::vector<float> scores = {0};
    while (scores.size() < 4) scores.push_back(scores.back() - static_cast<float>(2 * random.Uniform()));
    std::vector<double> distribution;
    for (const float score : scores) distribution.push_back(std::exp((score - scores.back()) / kTau));
    distribution.push_back(std::exp(kRest));
    const double total = std::accumulate(distribution.begin(), distribution.end(), 0.0);
    if (trial >= num_trials - kLast) {
      const std::vector<float> chances = model.Chances(scores);
      for (size_t i = 0; i < scores.size(); ++i) error += std::abs(chances[i] - distribution[i] / total) / kLast;
    }
    double u = random.Uniform() * total;
    size_t committed = 0;
    while (committed + 1 < distribution.size() && u >= distribution[committed]) u -= distribution[committed++];
    model.Observe(scores, committed < scores.size() ? std::optional(committed) : std::nullopt);
  }
  return error;
}

TEST(ChanceModel, FindsTheDistributionOfTheCommittedTokens) {
  ChanceModel model;
  EXPECT_LT(ErrorAfter(20'000, model), 0.03);
  EXPECT_NEAR(model.tau(), kTau, 0.06);
}

// A client can bias tokens as far apart as it likes, and its scores teach the model of all clients.
TEST(ChanceModel, ForgetsScoresThatWereFarApart) {
  ChanceModel model;
  for (const float far : {1e2f, 1e4f, 1e30f}) {
    for (int i = 0; i < 500; ++i) model.Observe(std::vector<float>{0, -far}, 1);
  }
  EXPECT_GT(model.tau(), 10);
  EXPECT_LT(ErrorAfter(20'000, model), 0.03);
  EXPECT_NEAR(model.tau(), kTau, 0.06);
}

}  // namespace
}  // namespace foretoken::proposer
