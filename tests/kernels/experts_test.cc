// SPDX-License-Identifier: Apache-2.0
// The op of a layer with experts. If this test fails, a mixture-of-experts server emits wrong tokens, or tokens that
// depend on other requests.
#include "kernels/cpu/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/make_backend.h"
#include "tests/reference/ops.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels {
namespace {

using testing::RandomValues;

constexpr int64_t kE = 48, kF = 40, kExperts = 6;

// Random experts, as matrices of a backend and as numbers.
struct RandomExperts {
  explicit RandomExperts(Backend& backend, const Quantization& quantization = {}) {
    RandomValues random(1);
    for (int64_t i = 0; i < kExperts; ++i) {
      gate_up.push_back(Bf16(random.Normals(2 * kF * kE, 0.2f)));
      down.push_back(Bf16(random.Normals(kE * kF, 0.2f)));
      const auto prepare = [&](const std::vector<uint16_t>& values, int64_t outputs, int64_t inputs) {
        const ConstTensorView part{values.data(), DType::kBF16, Shape(outputs, inputs)};
        return backend.PrepareWeight({.parts = std::span(&part, 1), .quantization = quantization});
      };
      weights.push_back(prepare(gate_up.back(), 2 * kF, kE));
      weights.push_back(prepare(down.back(), kE, kF));
      gate_up_bias.push_back(random.Normals(2 * kF));
      down_bias.push_back(random.Normals(kE));
      experts.push_back({.gate_up = weights[2 * i].get(), .down = weights[2 * i + 1].get()});
    }
  }
  void UseBiases() {
    for (int64_t i = 0; i < kExperts; ++i) {
      experts[i].gate_up_bias = gate_up_bias[i].data();
      experts[i].down_bias = down_bias[i].data();
    }
  }
  static std::vector<uint16_t> Bf16(const std::vector<float>& values) {
    std::vector<uint16_t> bits;
    for (const float value : values) bits.push_back(Bf16FromFloat(value));
    return bits;
  }

  std::vector<std::vector<uint16_t>> gate_up, down;         // by expert
  std::vector<std::vector<float>> gate_up_bias, down_bias;  // which only some tests use
  std::vector<std::unique_ptr<Weight>> weights;
  std::vector<Expert> experts;
};

struct Rows {
  explicit Rows(int64_t count)
      : num_rows(count),
        x(RandomExperts::Bf16(RandomValues(2).Normals(count * kE))),
        scores(RandomValues(3).Normals(count * kExperts)),
        out(count * kE, 7) {}
  ExpertsArgs Args(const RandomExperts& random) {
    return {.x = {x.data(), DType::kBF16, Shape(num_rows, kE)},
            .scores = {scores.data(), DType::kF32, Shape(num_rows, kExperts)},
            .expert = [&random](int32_t expert) { return random.experts[expert]; },
            .num_chosen = 3,
            .out = {out.data(), DType::kF32, Shape(num_rows, kE)}};
  }
  Rows Alone(int64_t row) const {
    Rows alone(1);
    alone.x.assign(x.begin() + row * kE, x.begin() + (row + 1) * kE);
    alone.scores.assign(scores.begin() + row * kExperts, scores.begin() + (row + 1) * kExperts);
    return alone;
  }
  std::vector<float> OfRow(int64_t row) const { return {out.begin() + row * kE, out.begin() + (row + 1) * kE}; }

  int64_t num_rows;
  std::vector<uint16_t> x;
  std::vector<float> scores;
  std::vector<float> out;
};

double Dot(const uint16_t* weights, const std::vector<double>& x) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += FloatFromBf16(weights[i]) * x[i];
  return sum;
}

// By the definition, in double, with gate times up rounded to bf16.
std::vector<double> Expected(const RandomExperts& random, const ExpertsArgs& args, const Rows& row) {
  const bool is_sigmoid =
      args.weighting == ExpertWeighting::kSigmoid || args.weighting == ExpertWeighting::kSigmoidOverChosen;
  std::vector<double> weights, values;
  for (const double score : row.scores) weights.push_back(is_sigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score));
  for (size_t i = 0; i < kExperts; ++i) values.push_back(weights[i] + (args.bias != nullptr ? args.bias[i] : 0));
  std::vector<size_t> order(kExperts);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t expert) { return values[expert]; });
  double total = 0;
  for (size_t i = 0; i < kExperts; ++i) {
    const bool is_chosen = i < static_cast<size_t>(args.num_chosen);
    if (is_chosen || args.weighting == ExpertWeighting::kSoftmaxOverAll) total += weights[order[i]];
  }
  if (args.weighting == ExpertWeighting::kSigmoid) total = 1;
  std::vector<double> x, out(kE);
  for (const uint16_t bits : row.x) x.push_back(FloatFromBf16(bits));
  for (int32_t i = 0; i < args.num_chosen; ++i) {
    const size_t expert = order[i];
    std::vector<double> gated;
    const Expert& used = random.experts[expert];
    const auto project = [&](int64_t f) {
      const double bias = used.gate_up_bias == nullptr ? 0 : used.gate_up_bias[f];
      return Dot(&random.gate_up[expert][f * kE], x) + bias;
    };
    const bool takes_turns = args.gating.is_interleaved;
    for (int64_t f = 0; f < kF; ++f) {
      const double value =
          reference::Gated(args.gating, project(takes_turns ? 2 * f : f), project(takes_turns ? 2 * f + 1 : kF + f));
      gated.push_back(FloatFromBf16(Bf16FromFloat(static_cast<float>(value))));
    }
    const double weight = args.scale * weights[expert] / total;
    for (int64_t e = 0; e < kE; ++e) {
      const double bias = used.down_bias == nullptr ? 0 : used.down_bias[e];
      out[e] += weight * (Dot(&random.down[expert][e * kF], gated) + bias);
    }
  }
  return out;
}

TEST(Experts, MatchTheirDefinitionOnEveryInstructionSet) {
  for (const std::string& isa : SupportedCpuIsas()) {
    const MadeBackend made = MakeBackend({.num_threads = 2, .isa = isa});
    const RandomExperts random(*made.backend);
    const std::vector<float> bias = RandomValues(4).Normals(kExperts);
    for (const ExpertWeighting weighting : {ExpertWeighting::kSoftmaxOverChosen, ExpertWeighting::kSoftmaxOverAll,
                                            ExpertWeighting::kSigmoidOverChosen, ExpertWeighting::kSigmoid}) {
      for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
        Rows rows(17);
        ExpertsArgs args = rows.Args(random);
        args.weighting = weighting;
        args.gating.activation = activation;
        args.scale = 1.5f;
        if (weighting == ExpertWeighting::kSigmoidOverChosen) args.bias = bias.data();
        made.backend->Experts(args);
        for (int64_t row = 0; row < rows.num_rows; ++row) {
          const std::vector<double> expected = Expected(random, args, rows.Alone(row));
          // A value of the gated row may be rounded to the other neighbour.
          for (int64_t e = 0; e < kE; ++e) ASSERT_NEAR(rows.out[row * kE + e], expected[e], 2e-3) << isa << row;
        }
      }
    }
  }
}

// Also in a numeric mode with integers.
TEST(Experts, GiveARowTheSameBitsInEveryBatch) {
  for (const Quantization& quantization : {Quantization(), Quantization(WeightQuantization::kInt4, 32, true)}) {
    const MadeBackend made = MakeBackend({.num_threads = 2});
    const RandomExperts random(*made.backend, quantization);
    Rows rows(70);
    made.backend->Experts(rows.Args(random));
    for (int64_t row = 0; row < rows.num_rows; ++row) {
      Rows alone = rows.Alone(row);
      made.backend->Experts(alone.Args(random));
      ASSERT_EQ(alone.out, rows.OfRow(row)) << row;
    }
  }
}

TEST(Experts, MatchTheirDefinitionWithBiasesAndACutGate) {
  const MadeBackend made = MakeBackend({.num_threads = 2});
  RandomExperts random(*made.backend);
  random.UseBiases();
  Rows rows(9);
  ExpertsArgs args = rows.Args(random);
  // Some values are beyond the limit.
  args.gating = {.activation = Activation::kGeluQuick, .limit = 1.5f, .up_offset = 1, .is_interleaved = true};
  made.backend->Experts(args);
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    const std::vector<double> expected = Expected(random, args, rows.Alone(row));
    for (int64_t e = 0; e < kE; ++e) ASSERT_NEAR(rows.out[row * kE + e], expected[e], 1e-2) << row;
  }
}

TEST(Experts, AreAskedForOnceEachInAscendingOrder) {
  const MadeBackend made = MakeBackend({.num_threads = 2});
  const RandomExperts random(*made.backend);
  Rows rows(70);
  ExpertsArgs args = rows.Args(random);
  std::vector<int32_t> asked;
  args.expert = [&](int32_t expert) {
    asked.push_back(expert);
    return random.experts[expert];
  };
  made.backend->Experts(args);
  EXPECT_EQ(asked, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Experts, TieScoresGoToTheLowerExpert) {
  const MadeBackend made = MakeBackend({.num_threads = 1});
  const RandomExperts random(*made.backend);
  Rows tied(1), chosen(1);
  tied.scores = {1, 2, 1, 1, 1, 1};
  chosen.scores = {1, 2, 1, 0, 0, 0};
  for (Rows* rows : {&tied, &chosen}) made.backend->Experts(rows->Args(random));
  EXPECT_EQ(tied.out, chosen.out);
}

TEST(Experts, ShowAScoreThatIsNoNumberInItsRowAlone) {
  const MadeBackend made = MakeBackend({.num_threads = 1});
  const RandomExperts random(*made.backend);
  Rows rows(3), before(3);
  made.backend->Experts(before.Args(random));
  rows.scores[kExperts + 2] = std::numeric_limits<float>::quiet_NaN();
  made.backend->Experts(rows.Args(random));
  EXPECT_EQ(rows.OfRow(0), before.OfRow(0));
  for (const float value : rows.OfRow(1)) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(rows.OfRow(2), before.OfRow(2));
}

}  // namespace
}  // namespace foretoken::kernels
