// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/expert_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "kernels/dtype.h"
#include "tests/reference/ops.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using kernels::Activation;
using kernels::Bf16FromFloat;
using kernels::ConstTensorView;
using kernels::CopyKind;
using kernels::DType;
using kernels::ExpertWeighting;
using kernels::FloatFromBf16;
using kernels::Shape;

std::vector<uint16_t> InBf16Bits(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(Bf16FromFloat(value));
  return bits;
}

template <typename T>
kernels::Buffer Upload(kernels::Backend& backend, const std::vector<T>& values) {
  kernels::Buffer buffer = backend.Allocate(values.size() * sizeof(T));
  if (!values.empty()) backend.Copy(buffer.get(), values.data(), values.size() * sizeof(T), CopyKind::kToDevice);
  return buffer;
}

double DotWithBits(const uint16_t* weights, const std::vector<double>& x) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += FloatFromBf16(weights[i]) * x[i];
  return sum;
}

// A row's result by the definition, in double, with gate times up rounded to bf16.
std::vector<double> DefinedExperts(const RandomExperts& experts, const ExpertRows& row) {
  const auto [E, F, N] = experts.sizes();
  const bool is_sigmoid =
      row.weighting == ExpertWeighting::kSigmoid || row.weighting == ExpertWeighting::kSigmoidOverChosen;
  std::vector<double> weights, values;
  for (const double score : row.scores) weights.push_back(is_sigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score));
  for (int64_t i = 0; i < N; ++i) values.push_back(weights[i] + (row.bias.empty() ? 0 : row.bias[i]));
  std::vector<int64_t> order(N);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](int64_t expert) { return values[expert]; });
  double total = 0;
  for (int64_t i = 0; i < N; ++i) {
    if (i < row.num_chosen || row.weighting == ExpertWeighting::kSoftmaxOverAll) total += weights[order[i]];
  }
  if (row.weighting == ExpertWeighting::kSigmoid) total = 1;
  std::vector<double> x, out(E);
  for (const uint16_t bits : row.x) x.push_back(FloatFromBf16(bits));
  for (int32_t i = 0; i < row.num_chosen; ++i) {
    const int64_t expert = order[i];
    const auto project = [&](int64_t f) {
      return DotWithBits(experts.gate_up(expert, f), x) + (row.has_biases ? experts.gate_up_bias(expert, f) : 0);
    };
    const bool takes_turns = row.gating.is_interleaved;
    std::vector<double> gated;
    for (int64_t f = 0; f < F; ++f) {
      const double value =
          reference::Gated(row.gating, project(takes_turns ? 2 * f : f), project(takes_turns ? 2 * f + 1 : F + f));
      gated.push_back(FloatFromBf16(Bf16FromFloat(static_cast<float>(value))));
    }
    for (int64_t e = 0; e < E; ++e) {
      const double bias = row.has_biases ? experts.down_bias(expert, e) : 0;
      out[e] += row.scale * weights[expert] / total * (DotWithBits(experts.down(expert, e), gated) + bias);
    }
  }
  return out;
}

void ExpectAsDefined(const RandomExperts& experts, ExpertRows rows, double tolerance) {
  rows.Run(experts);
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    const std::vector<double> expected = DefinedExperts(experts, rows.Alone(row));
    for (int64_t e = 0; e < rows.sizes.E; ++e) {
      ASSERT_NEAR(rows.OutOf(row)[e], expected[e], tolerance) << experts.backend().Describe() << " row " << row;
    }
  }
}

}  // namespace

RandomExperts::RandomExperts(kernels::Backend& backend, const ExpertSizes& sizes, const QuantizationOf& quantization_of)
    : backend_(backend), sizes_(sizes) {
  RandomValues random(1);
  for (int64_t i = 0; i < sizes.N; ++i) {
    gate_up_.push_back(InBf16Bits(random.Normals(2 * sizes.F * sizes.E, 0.2f)));
    down_.push_back(InBf16Bits(random.Normals(sizes.E * sizes.F, 0.2f)));
    const auto prepare = [&](const std::vector<uint16_t>& values, int64_t outputs, int64_t inputs) {
      const ConstTensorView part{values.data(), DType::kBF16, Shape(outputs, inputs)};
      return backend.PrepareWeight(
          {.parts = std::span(&part, 1),
           .quantization = quantization_of ? quantization_of(static_cast<int32_t>(i)) : kernels::Quantization()});
    };
    weights_.push_back(prepare(gate_up_.back(), 2 * sizes.F, sizes.E));
    weights_.push_back(prepare(down_.back(), sizes.E, sizes.F));
    gate_up_bias_.push_back(random.Normals(2 * sizes.F));
    down_bias_.push_back(random.Normals(sizes.E));
    biases_.push_back(Upload(backend, gate_up_bias_.back()));
    biases_.push_back(Upload(backend, down_bias_.back()));
  }
}

kernels::Expert RandomExperts::expert(int32_t i, bool has_biases) const {
  kernels::Expert expert = {.gate_up = weights_[2 * i].get(), .down = weights_[2 * i + 1].get()};
  if (has_biases) {
    expert.gate_up_bias = static_cast<const float*>(biases_[2 * i].get());
    expert.down_bias = static_cast<const float*>(biases_[2 * i + 1].get());
  }
  return expert;
}

ExpertRows::ExpertRows(const ExpertSizes& sizes, int64_t num_rows)
    : sizes(sizes),
      num_rows(num_rows),
      x(InBf16Bits(RandomValues(2).Normals(num_rows * sizes.E))),
      scores(RandomValues(3).Normals(num_rows * sizes.N)),
      out(num_rows * sizes.E, 7) {}

ExpertRows ExpertRows::Alone(int64_t row) const {
  ExpertRows alone = *this;
  alone.num_rows = 1;
  alone.x.assign(x.begin() + row * sizes.E, x.begin() + (row + 1) * sizes.E);
  alone.scores.assign(scores.begin() + row * sizes.N, scores.begin() + (row + 1) * sizes.N);
  alone.out.assign(sizes.E, 7);
  return alone;
}

std::vector<float> ExpertRows::OutOf(int64_t row) const {
  return {out.begin() + row * sizes.E, out.begin() + (row + 1) * sizes.E};
}

void ExpertRows::Run(const RandomExperts& experts) {
  kernels::Backend& backend = experts.backend();
  const auto set = backend.PrepareExperts(static_cast<int32_t>(sizes.N),
                                          [&](int32_t expert) { return experts.expert(expert, has_biases); });
  const kernels::Buffer own_x = Upload(backend, x), own_scores = Upload(backend, scores),
                        own_bias = Upload(backend, bias), own_out = Upload(backend, out);
  backend.Experts({.x = {own_x.get(), DType::kBF16, Shape(num_rows, sizes.E)},
                   .scores = {own_scores.get(), DType::kF32, Shape(num_rows, sizes.N)},
                   .experts = set.get(),
                   .num_chosen = num_chosen,
                   .bias = bias.empty() ? nullptr : static_cast<const float*>(own_bias.get()),
                   .weighting = weighting,
                   .scale = scale,
                   .gating = gating,
                   .out = {own_out.get(), DType::kF32, Shape(num_rows, sizes.E)}});
  backend.Copy(out.data(), own_out.get(), out.size() * sizeof(float), CopyKind::kToHost);
  backend.Synchronize();
}

void ExpectExpertsAsDefined(kernels::Backend& backend) {
  const RandomExperts experts(backend);
  const std::vector<float> bias = RandomValues(4).Normals(experts.sizes().N);
  for (const ExpertWeighting weighting : {ExpertWeighting::kSoftmaxOverChosen, ExpertWeighting::kSoftmaxOverAll,
                                          ExpertWeighting::kSigmoidOverChosen, ExpertWeighting::kSigmoid}) {
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      ExpertRows rows(experts.sizes(), 17);
      rows.weighting = weighting;
      rows.gating.activation = activation;
      rows.scale = 1.5f;
      if (weighting == ExpertWeighting::kSigmoidOverChosen) rows.bias = bias;
      ExpectAsDefined(experts, rows, 2e-3);  // a value of the gated row may be rounded to the other neighbour
    }
  }
}

void ExpectExpertsWithBiasesAndACutGate(kernels::Backend& backend) {
  const RandomExperts experts(backend);
  ExpertRows rows(experts.sizes(), 9);
  rows.has_biases = true;
  // Some values are beyond the limit.
  rows.gating = {.activation = Activation::kGeluQuick, .limit = 1.5f, .up_offset = 1, .is_interleaved = true};
  ExpectAsDefined(experts, rows, 1e-2);
}

void ExpectTiesToTheLowerExpert(kernels::Backend& backend) {
  const RandomExperts experts(backend);
  ExpertRows tied(experts.sizes(), 1), chosen(experts.sizes(), 1);
  tied.scores = {1, 2, 1, 1, 1, 1};
  chosen.scores = {1, 2, 1, 0, 0, 0};
  for (ExpertRows* rows : {&tied, &chosen}) rows->Run(experts);
  EXPECT_EQ(tied.out, chosen.out);
}

void ExpectAScoreThatIsNoNumberInItsRowAlone(kernels::Backend& backend) {
  const RandomExperts experts(backend);
  for (const ExpertWeighting weighting : {ExpertWeighting::kSoftmaxOverChosen, ExpertWeighting::kSigmoid}) {
    for (int64_t expert = 0; expert < experts.sizes().N; ++expert) {  // whether the row chooses it or not
      ExpertRows rows(experts.sizes(), 3);
      rows.weighting = weighting;
      ExpertRows before = rows;
      before.Run(experts);
      rows.scores[experts.sizes().N + expert] = std::numeric_limits<float>::quiet_NaN();
      rows.Run(experts);
      EXPECT_EQ(rows.OutOf(0), before.OutOf(0)) << expert;
      for (const float value : rows.OutOf(1)) EXPECT_TRUE(std::isnan(value)) << expert;
      EXPECT_EQ(rows.OutOf(2), before.OutOf(2)) << expert;
    }
  }
}

void ExpectRowsAsAlone(const RandomExperts& experts, int64_t num_rows) {
  ExpertRows rows(experts.sizes(), num_rows);
  rows.Run(experts);
  for (int64_t row = 0; row < num_rows; ++row) {
    ExpertRows alone = rows.Alone(row);
    alone.Run(experts);
    ASSERT_EQ(alone.out, rows.OutOf(row)) << experts.backend().Describe() << " row " << row << " of " << num_rows;
  }
}

}  // namespace foretoken::testing
