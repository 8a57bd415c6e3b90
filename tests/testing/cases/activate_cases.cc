// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/activate_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/reference/ops.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using kernels::Activation;
using kernels::DType;
using kernels::OutputMode;
using kernels::Shape;

constexpr int64_t kRows = 3;

struct Form {
  Activation activation;
  bool has_bias;
  bool is_bf16;
  OutputMode mode;
};

void ExpectForm(const Form& form, int64_t num_columns,
                const std::function<void(const kernels::ActivateArgs&)>& activate) {
  RandomValues random(3);
  std::vector<float> x = random.Normals(kRows * num_columns, 4), bias = random.Normals(num_columns);
  x[0] = -200;
  x.back() = 200;
  const std::vector<float> before = random.Normals(x.size());
  std::vector<float> floats = before;
  std::vector<uint16_t> halves(x.size());
  void* const out = form.is_bf16 ? static_cast<void*>(halves.data()) : floats.data();
  activate({.x = {x.data(), DType::kF32, Shape(kRows, num_columns)},
            .bias = form.has_bias ? bias.data() : nullptr,
            .activation = form.activation,
            .mode = form.mode,
            .out = {out, form.is_bf16 ? DType::kBF16 : DType::kF32, Shape(kRows, num_columns)}});
  for (size_t i = 0; i < x.size(); ++i) {
    const double sum = static_cast<double>(x[i] + (form.has_bias ? bias[i % num_columns] : 0.0f));
    const double added = form.mode == OutputMode::kAdd ? before[i] : 0;
    const double expected = reference::Activated(form.activation, sum) + added;
    const double actual = form.is_bf16 ? kernels::FloatFromBf16(halves[i]) : floats[i];
    // Six f32 operations of 2^-24 on values up to |x|, or up to 1 in a sigmoid, where 1 + erf cancels for negative x;
    // and a rounding to bf16.
    const double size = form.activation == Activation::kSigmoid ? 1 : std::abs(sum);
    const double tolerance = 8 * 0x1p-24 * (size + std::abs(added)) + (form.is_bf16 ? 0x1p-8 * std::abs(expected) : 0);
    ASSERT_NEAR(actual, expected, tolerance) << "x " << sum << ", column " << i % num_columns;
  }
}

}  // namespace

void ExpectActivated(const std::function<void(const kernels::ActivateArgs&)>& activate) {
  for (const Activation activation :
       {Activation::kSigmoid, Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kGeluQuick}) {
    for (const int64_t num_columns : {1, 31, 600}) {
      for (const bool has_bias : {false, true}) {
        ExpectForm({activation, has_bias, false, OutputMode::kStore}, num_columns, activate);
        ExpectForm({activation, has_bias, false, OutputMode::kAdd}, num_columns, activate);
        ExpectForm({activation, has_bias, true, OutputMode::kStore}, num_columns, activate);
      }
    }
  }
}

void ExpectRecurrentCells(const std::function<void(const kernels::RecurrentCellArgs&)>& step) {
  for (const int64_t num_columns : {1, 31, 600}) {
    RandomValues random(5);
    std::vector<float> gates = random.Normals(kRows * 3 * num_columns, 3), state = random.Normals(kRows * num_columns);
    gates.front() = 200;
    gates.back() = -200;
    const std::vector<float> before = state;
    std::vector<uint16_t> out(state.size());
    step({.gates = {gates.data(), DType::kF32, Shape(kRows, 3 * num_columns)},
          .state = {state.data(), DType::kF32, Shape(kRows, num_columns)},
          .out = {out.data(), DType::kBF16, Shape(kRows, num_columns)}});
    for (size_t i = 0; i < state.size(); ++i) {
      const auto column = static_cast<int64_t>(i) % num_columns, row = static_cast<int64_t>(i) / num_columns;
      const float* const of_row = gates.data() + row * 3 * num_columns + column;
      const double kept = 1 / (1 + std::exp(-double{of_row[0]}));
      const double expected = kept * before[i] + (1 - kept) * std::tanh(double{of_row[num_columns]});
      ASSERT_NEAR(state[i], expected, 8 * 0x1p-24 * (1 + std::abs(before[i])))
          << "columns " << num_columns << ", " << i;
      const double output = std::tanh(double{of_row[2 * num_columns]});
      ASSERT_NEAR(kernels::FloatFromBf16(out[i]), output, 0x1p-8 * std::abs(output)) << num_columns << ", " << i;
    }
  }
}

}  // namespace foretoken::testing
