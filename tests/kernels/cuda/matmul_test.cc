// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/kernels/cuda/on_device.h"
#include "tests/reference/matmul.h"
#include "tests/testing/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

using reference::MatMulInput;
using reference::MatMulResult;

// Values that bf16 holds exactly.
std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::vector<float> values = testing::RandomValues(seed).Normals(count);
  for (float& value : values) value = FloatFromBf16(Bf16FromFloat(value));
  return values;
}

MatMulInput RandomInput(int64_t num_rows, int64_t num_outputs, int64_t num_inputs) {
  std::vector<uint16_t> x;
  for (const float value : RandomFloats(num_rows * num_inputs, 1)) x.push_back(Bf16FromFloat(value));
  return {.num_rows = num_rows,
          .num_outputs = num_outputs,
          .num_inputs = num_inputs,
          .x = x,
          .weight = RandomFloats(num_outputs * num_inputs, 2),
          .bias = {},
          .previous = {}};
}

class MatMulTest : public OnDevice {
 protected:
  std::unique_ptr<CudaWeight> Prepare(const MatMulInput& input) {
    return OnDevice::Prepare({input.weight.data(), DType::kF32, Shape(input.num_outputs, input.num_inputs)});
  }

  std::vector<float> Run(const MatMulInput& input, const CudaWeight& weight) {
    std::vector<float> out = input.previous;
    out.resize(input.num_rows * input.num_outputs, std::numeric_limits<float>::quiet_NaN());
    RunMatMul({.x = {input.x.data(), DType::kBF16, Shape(input.num_rows, input.num_inputs)},
               .weight = &weight,
               .bias = input.bias.empty() ? nullptr : input.bias.data(),
               .mode = input.previous.empty() ? OutputMode::kStore : OutputMode::kAdd,
               .out = {out.data(), DType::kF32, Shape(input.num_rows, input.num_outputs)}});
    return out;
  }

  // Products of bf16 are exact in f32. A sum passes at most K + 2 roundings (the chain, bias, previous), so its error
  // is at most gamma = n u / (1 - n u) of the sum of magnitudes, u = 2^-24 (Higham, "Accuracy and Stability of
  // Numerical Algorithms", section 3.1).
  void ExpectCloseTo(const MatMulInput& input) {
    SCOPED_TRACE(::testing::Message() << "T " << input.num_rows << " N " << input.num_outputs << " K "
                                      << input.num_inputs);
    const std::vector<float> out = Run(input, *Prepare(input));
    const double n = static_cast<double>(input.num_inputs) + 2;
    const double gamma = n * 0x1p-24 / (1 - n * 0x1p-24);
    const MatMulResult expected = reference::MatMul(input);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], expected.sums[i], gamma * expected.magnitudes[i])
          << "row " << i / input.num_outputs << " output " << i % input.num_outputs;
    }
  }
};

TEST_F(MatMulTest, AgreesWithTheReferenceForEveryRowCount) {
  for (int64_t num_rows = 0; num_rows <= 70; ++num_rows) ExpectCloseTo(RandomInput(num_rows, 80, 64));
}

TEST_F(MatMulTest, AgreesWithTheReferenceForOddShapes) {
  for (const int64_t num_outputs : {1, 15, 64, 65, 129}) {
    for (const int64_t num_inputs : {1, 2, 31, 33, 75, 200}) {
      for (const int64_t num_rows : {1, 7, 19}) ExpectCloseTo(RandomInput(num_rows, num_outputs, num_inputs));
    }
  }
}

TEST_F(MatMulTest, AgreesWithTheReferenceForLongSumsAndManyRows) {
  ExpectCloseTo(RandomInput(1, 100, 4099));
  ExpectCloseTo(RandomInput(200, 70, 40));
}

TEST_F(MatMulTest, AddsBiasAndPreviousOutput) {
  for (const int64_t num_rows : {1, 33}) {
    MatMulInput input = RandomInput(num_rows, 45, 70);
    input.bias = RandomFloats(45, 3);
    ExpectCloseTo(input);
    input.previous = RandomFloats(num_rows * 45, 4);
    ExpectCloseTo(input);
    input.bias.clear();
    ExpectCloseTo(input);
  }
}

TEST_F(MatMulTest, AddsTheFinishedSumToThePreviousOutputOnce) {
  MatMulInput input = RandomInput(9, 40, 333);
  input.bias = RandomFloats(40, 3);
  const auto weight = Prepare(input);
  const std::vector<float> sums = Run(input, *weight);
  input.previous = RandomFloats(sums.size(), 4);
  const std::vector<float> out = Run(input, *weight);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], input.previous[i] + sums[i]);
}

// The numeric class, spelt out: one chain of fused multiply-adds over the inputs.
TEST_F(MatMulTest, SumsInTheOrderOfTheInputs) {
  const MatMulInput input = RandomInput(3, 5, 777);
  const std::vector<float> out = Run(input, *Prepare(input));
  for (int64_t i = 0; i < 15; ++i) {
    const int64_t row = i / 5, output = i % 5;
    float sum = 0;
    for (int64_t k = 0; k < 777; ++k) {
      sum = std::fma(FloatFromBf16(input.x[row * 777 + k]), input.weight[output * 777 + k], sum);
    }
    EXPECT_EQ(out[i], sum) << i;
  }
}

TEST_F(MatMulTest, AnInfinityStaysInItsRow) {
  MatMulInput input = RandomInput(3, 20, 33);
  for (int64_t k = 0; k < 33; ++k) input.x[33 + k] = Bf16FromFloat(std::numeric_limits<float>::infinity());
  const std::vector<float> out = Run(input, *Prepare(input));
  for (int64_t n = 0; n < 20; ++n) {
    EXPECT_TRUE(std::isfinite(out[n]));
    EXPECT_FALSE(std::isfinite(out[20 + n]));
    EXPECT_TRUE(std::isfinite(out[40 + n]));
  }
}

// E1: bit for bit the same row, whatever rows stand around it, wherever it stands.
TEST_F(MatMulTest, ARowDoesNotDependOnItsNeighbours) {
  constexpr int64_t kRows = 100, kOutputs = 70, kInputs = 515;
  const MatMulInput all = RandomInput(kRows, kOutputs, kInputs);
  const auto weight = Prepare(all);
  const std::vector<float> expected = Run(all, *weight);
  for (const int64_t num_rows : {1, 2, 5, 15, 16, 17, 64, 65}) {
    for (const int64_t first : {int64_t{0}, int64_t{23}, kRows - num_rows}) {
      MatMulInput some = all;
      some.num_rows = num_rows;
      some.x.assign(all.x.begin() + first * kInputs, all.x.begin() + (first + num_rows) * kInputs);
      const std::vector<float> out = Run(some, *weight);
      ASSERT_EQ(std::memcmp(out.data(), expected.data() + first * kOutputs, out.size() * sizeof(float)), 0)
          << num_rows << " rows from " << first;
    }
  }
}

}  // namespace
}  // namespace foretoken::kernels::cuda
