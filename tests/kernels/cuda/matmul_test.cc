// SPDX-License-Identifier: Apache-2.0
// Matrix products on the CUDA backend: against the reference, and the same bits from every kernel. If this test fails,
// a GPU server emits wrong tokens, or tokens that depend on other requests.
#include "kernels/cuda/matmul/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cuda/matmul/numeric_class.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/reference/e4m3.h"
#include "tests/reference/matmul.h"
#include "tests/testing/cases/random_values.h"

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

// Rows [first, first + count) of the input.
MatMulInput RowsOf(const MatMulInput& input, int64_t first, int64_t count) {
  MatMulInput some = input;
  some.num_rows = count;
  some.x.assign(input.x.begin() + first * input.num_inputs, input.x.begin() + (first + count) * input.num_inputs);
  if (!input.previous.empty()) {
    some.previous.assign(input.previous.begin() + first * input.num_outputs,
                         input.previous.begin() + (first + count) * input.num_outputs);
  }
  return some;
}

// Codes by codes, times both scales.
MatMulResult Fp8Reference(const MatMulInput& input) {
  const int64_t num_inputs = input.num_inputs;
  MatMulInput codes = input;
  codes.bias.clear();
  codes.previous.clear();
  std::vector<double> row_scales, output_scales;
  for (int64_t row = 0; row < input.num_rows; ++row) {
    std::vector<float> values;
    for (int64_t k = 0; k < num_inputs; ++k) values.push_back(FloatFromBf16(input.x[row * num_inputs + k]));
    const reference::E4m3Row quantized = reference::QuantizeE4m3(values);
    row_scales.push_back(quantized.scale);
    for (int64_t k = 0; k < num_inputs; ++k) codes.x[row * num_inputs + k] = Bf16FromFloat(quantized.codes[k]);
  }
  for (int64_t n = 0; n < input.num_outputs; ++n) {
    const std::span<float> output = std::span(codes.weight).subspan(n * num_inputs, num_inputs);
    const reference::E4m3Row quantized = reference::QuantizeE4m3(output);
    output_scales.push_back(quantized.scale);
    std::ranges::copy(quantized.codes, output.begin());
  }
  MatMulResult result = reference::MatMul(codes);
  for (size_t i = 0; i < result.sums.size(); ++i) {
    const double scale = row_scales[i / input.num_outputs] * output_scales[i % input.num_outputs];
    const double bias = input.bias.empty() ? 0 : input.bias[i % input.num_outputs];
    const double previous = input.previous.empty() ? 0 : input.previous[i];
    result.sums[i] = result.sums[i] * scale + bias + previous;
    result.magnitudes[i] = result.magnitudes[i] * scale + std::abs(bias) + std::abs(previous);
  }
  return result;
}

class MatMulTest : public OnDevice {
 protected:
  std::unique_ptr<CudaWeight> Prepare(const MatMulInput& input,
                                      WeightQuantization quantization = WeightQuantization::kNone) {
    return OnDevice::Prepare({input.weight.data(), DType::kF32, Shape(input.num_outputs, input.num_inputs)},
                             quantization);
  }

  std::vector<float> Run(const MatMulInput& input, const CudaWeight& weight, MatMulKernel kernel = MatMul) {
    std::vector<float> out = input.previous;
    out.resize(input.num_rows * input.num_outputs, std::numeric_limits<float>::quiet_NaN());
    RunMatMul({.x = {input.x.data(), DType::kBF16, Shape(input.num_rows, input.num_inputs)},
               .weight = &weight,
               .bias = input.bias.empty() ? nullptr : input.bias.data(),
               .mode = input.previous.empty() ? OutputMode::kStore : OutputMode::kAdd,
               .out = {out.data(), DType::kF32, Shape(input.num_rows, input.num_outputs)}},
              kernel);
    return out;
  }

  // Products of bf16 are exact. A GPU's step adds 17 numbers, its 16 products and the sum so far. Each of them may be
  // cut off 2^-23 below the largest (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores",
  // PeerJ Computer Science 7:e330), which equals 34 roundings of u = 2^-24. Then a split, two scales, bias and the
  // previous output round once each. So a sum's error is at most gamma = n u / (1 - n u) of the sum of magnitudes
  // (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1). Products of e4m3 are exact in f16 steps as
  // well.
  void ExpectCloseTo(const MatMulInput& input, const CudaWeight& weight, const MatMulResult& expected) {
    SCOPED_TRACE(::testing::Message() << "T " << input.num_rows << " N " << input.num_outputs << " K "
                                      << input.num_inputs);
    const std::vector<float> out = Run(input, weight);
    const NumericClass order = NumericClassOf(input.num_outputs, input.num_inputs);
    const double n = 34.0 * order.num_slices * kSliceInputs / 16 + order.num_splits + 4;
    const double gamma = n * 0x1p-24 / (1 - n * 0x1p-24);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], expected.sums[i], gamma * expected.magnitudes[i])
          << "row " << i / input.num_outputs << " output " << i % input.num_outputs;
    }
  }
  void ExpectCloseTo(const MatMulInput& input) { ExpectCloseTo(input, *Prepare(input), reference::MatMul(input)); }
  void ExpectFp8CloseTo(const MatMulInput& input) {
    ExpectCloseTo(input, *Prepare(input, WeightQuantization::kFp8), Fp8Reference(input));
  }

  // Expects the same bits.
  void ExpectSameFromAllKernels(const MatMulInput& input, const CudaWeight& weight) {
    SCOPED_TRACE(::testing::Message() << "T " << input.num_rows << " N " << input.num_outputs << " K "
                                      << input.num_inputs);
    const std::vector<float> expected = Run(input, weight, Skinny<MatrixUnit::kWarps>);
    for (const float value : expected) ASSERT_FALSE(std::isnan(value));
    for (const MatMulKernel kernel : MatMulKernels()) {
      const std::vector<float> out = Run(input, weight, kernel);
      ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0);
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

// The numeric class, spelt out: each split is a product of its own, and the splits are added in order.
TEST_F(MatMulTest, AddsTheSumsOfSplitsInOrder) {
  constexpr int64_t kOutputs = 20, kInputs = 1100, kRows = 3;
  const NumericClass order = NumericClassOf(kOutputs, kInputs);
  ASSERT_EQ(order.num_splits, 4);
  const MatMulInput all = RandomInput(kRows, kOutputs, kInputs);
  std::vector<float> expected;
  for (int32_t split = 0; split < order.num_splits; ++split) {
    const int64_t begin = int64_t{order.split_begin(split)} * kSliceInputs;
    const int64_t end = std::min<int64_t>(int64_t{order.split_begin(split + 1)} * kSliceInputs, kInputs);
    ASSERT_EQ(NumericClassOf(kOutputs, end - begin).num_splits, 1);
    MatMulInput some = RandomInput(kRows, kOutputs, end - begin);
    for (int64_t k = begin; k < end; ++k) {
      for (int64_t row = 0; row < kRows; ++row) some.x[row * (end - begin) + k - begin] = all.x[row * kInputs + k];
      for (int64_t n = 0; n < kOutputs; ++n) some.weight[n * (end - begin) + k - begin] = all.weight[n * kInputs + k];
    }
    const std::vector<float> sums = Run(some, *Prepare(some));
    if (split == 0) expected.assign(sums.size(), -0.0f);
    for (size_t i = 0; i < sums.size(); ++i) expected[i] += sums[i];
  }
  EXPECT_EQ(Run(all, *Prepare(all)), expected);
}

// The end of a slice must be zeros, which add nothing, and not the memory behind a row.
TEST_F(MatMulTest, InputsBeyondTheLastAddNothing) {
  for (const int64_t num_inputs : {70, 72}) {
    MatMulInput input = RandomInput(2, 16, num_inputs), padded = RandomInput(2, 16, 128);
    std::fill(padded.x.begin(), padded.x.end(), uint16_t{0});
    std::fill(padded.weight.begin(), padded.weight.end(), 1.0f);
    for (int64_t k = 0; k < num_inputs; ++k) {
      for (int64_t row = 0; row < 2; ++row) padded.x[row * 128 + k] = input.x[row * num_inputs + k];
      for (int64_t n = 0; n < 16; ++n) padded.weight[n * 128 + k] = input.weight[n * num_inputs + k];
    }
    EXPECT_EQ(Run(input, *Prepare(input)), Run(padded, *Prepare(padded)));
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

// E1: a row has the same bits with any neighbours, at any place, and from either kernel.
TEST_F(MatMulTest, ARowDoesNotDependOnItsNeighbours) {
  constexpr int64_t kRows = 140, kOutputs = 70, kInputs = 520;
  const MatMulInput all = RandomInput(kRows, kOutputs, kInputs);
  const auto weight = Prepare(all);
  const std::vector<float> expected = Run(all, *weight, Tiled<MatrixUnit::kWarps>);
  for (const int64_t num_rows : {1, 2, 8, 9, 16, 17, 33, 64, 65, 140}) {
    for (const int64_t first : {int64_t{0}, (kRows - num_rows) / 3, kRows - num_rows}) {
      const std::vector<float> out = Run(RowsOf(all, first, num_rows), *weight);
      ASSERT_EQ(std::memcmp(out.data(), expected.data() + first * kOutputs, out.size() * sizeof(float)), 0)
          << num_rows << " rows from " << first;
    }
  }
}

// E1 across kernels: one split and several, whole tiles and ragged ones, rows that can be copied 16 bytes at a time and
// rows that cannot, tiles of 128 and of 256 rows.
TEST_F(MatMulTest, KernelsAgreeBitForBit) {
  std::vector<MatMulInput> inputs;
  for (const int64_t num_inputs : {8, 65, 448, 777, 1024}) {
    for (const int64_t num_rows : {1, 67}) inputs.push_back(RandomInput(num_rows, 130, num_inputs));
  }
  for (const int64_t num_rows : {8, 13, 30, 64}) {
    inputs.push_back(RandomInput(num_rows, 1, 777));
    inputs.push_back(RandomInput(num_rows, 128, 520));
  }
  for (const MatMulInput& input : inputs) ExpectSameFromAllKernels(input, *Prepare(input));
  const MatMulInput tall = RandomInput(300, 140, 264);
  ASSERT_EQ(NumericClassOf(140, 264).num_splits, 1);
  ExpectSameFromAllKernels(tall, *Prepare(tall));
}

TEST_F(MatMulTest, KernelsAgreeBitForBitOnBiasAndPreviousOutput) {
  for (const int64_t num_inputs : {72, 1024}) {
    MatMulInput input = RandomInput(70, 150, num_inputs);
    input.bias = RandomFloats(150, 3);
    input.previous = RandomFloats(70 * 150, 4);
    for (const auto quantization : {WeightQuantization::kNone, WeightQuantization::kFp8}) {
      ExpectSameFromAllKernels(input, *Prepare(input, quantization));
    }
  }
}

// The block that arrives last must leave the tile's counter at zero.
TEST_F(MatMulTest, GivesTheSameAgain) {
  const MatMulInput input = RandomInput(70, 200, 1024);
  ASSERT_GT(NumericClassOf(200, 1024).num_splits, 1);
  const auto weight = Prepare(input);
  const std::vector<float> once = Run(input, *weight, Skinny<MatrixUnit::kWarps>);
  EXPECT_EQ(Run(input, *weight, Skinny<MatrixUnit::kWarps>), once);
}

TEST_F(MatMulTest, Fp8AgreesWithTheReference) {
  for (const int64_t num_inputs : {1, 40, 65, 1100}) {
    for (const int64_t num_rows : {1, 9, 70}) {
      MatMulInput input = RandomInput(num_rows, 37, num_inputs);
      ExpectFp8CloseTo(input);
      input.bias = RandomFloats(37, 3);
      input.previous = RandomFloats(num_rows * 37, 4);
      ExpectFp8CloseTo(input);
    }
  }
}

// A single input meets its own weight and no other: at every place of a slice, in a row and in a weight.
TEST_F(MatMulTest, Fp8MultipliesEveryInputByItsOwnWeight) {
  constexpr int64_t kInputs = 130, kOutputs = 130;
  MatMulInput input = RandomInput(kInputs, kOutputs, kInputs);
  std::ranges::fill(input.x, uint16_t{0});
  for (int64_t k = 0; k < kInputs; ++k) input.x[k * kInputs + k] = Bf16FromFloat(448);  // the code is 448, the scale 1
  const auto weight = Prepare(input, WeightQuantization::kFp8);
  const std::vector<float> out = Run(input, *weight), elements = DownloadWeight(*weight);
  for (int64_t k = 0; k < kInputs; ++k) {
    for (int64_t n = 0; n < kOutputs; ++n) {
      const float product = 448 * elements[n * kInputs + k];
      ASSERT_NEAR(out[k * kOutputs + n], product, 0x1p-23 * std::abs(product)) << "input " << k << " output " << n;
    }
  }
}

TEST_F(MatMulTest, Fp8KernelsAgreeBitForBit) {
  for (const int64_t num_inputs : {65, 1024}) {
    for (const int64_t num_rows : {1, 13, 30, 67}) {
      const MatMulInput input = RandomInput(num_rows, 130, num_inputs);
      ExpectSameFromAllKernels(input, *Prepare(input, WeightQuantization::kFp8));
    }
  }
  const MatMulInput tall = RandomInput(300, 140, 264);
  ExpectSameFromAllKernels(tall, *Prepare(tall, WeightQuantization::kFp8));
}

// E1 of FP8: also with neighbours that would change a scale shared by all rows.
TEST_F(MatMulTest, Fp8RowsDoNotDependOnTheirNeighbours) {
  constexpr int64_t kRows = 140, kOutputs = 40, kInputs = 520;
  MatMulInput all = RandomInput(kRows, kOutputs, kInputs);
  for (int64_t k = 0; k < kInputs; ++k) all.x[69 * kInputs + k] = Bf16FromFloat(1e30f * static_cast<float>(k));
  all.x[71 * kInputs] = Bf16FromFloat(std::numeric_limits<float>::infinity());
  const auto weight = Prepare(all, WeightQuantization::kFp8);
  const std::vector<float> expected = Run(all, *weight, Tiled<MatrixUnit::kWarps>);
  for (const int64_t num_rows : {1, 2, 8, 9, 17, 33, 64, 65, 140}) {
    for (const int64_t first : {int64_t{0}, (kRows - num_rows) / 2, kRows - num_rows}) {
      const std::vector<float> out = Run(RowsOf(all, first, num_rows), *weight);
      ASSERT_EQ(std::memcmp(out.data(), expected.data() + first * kOutputs, out.size() * sizeof(float)), 0)
          << num_rows << " rows from " << first;
    }
  }
}

// Rows of zeros give the bias. Rows with one NaN or infinity give no finite value. Neither changes other rows.
TEST_F(MatMulTest, Fp8KeepsNonFiniteValuesInTheirRow) {
  constexpr int64_t kOutputs = 20, kInputs = 33;
  for (const float spoilt : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    MatMulInput input = RandomInput(4, kOutputs, kInputs);
    input.bias = RandomFloats(kOutputs, 3);
    for (int64_t k = 0; k < kInputs; ++k) input.x[kInputs + k] = 0;
    input.x[2 * kInputs + 7] = Bf16FromFloat(spoilt);
    for (int64_t k = 0; k < kInputs; ++k) input.weight[5 * kInputs + k] = 0;
    const std::vector<float> out = Run(input, *Prepare(input, WeightQuantization::kFp8));
    for (int64_t n = 0; n < kOutputs; ++n) {
      EXPECT_TRUE(std::isfinite(out[n]));
      EXPECT_EQ(out[kOutputs + n], input.bias[n]);
      EXPECT_FALSE(std::isfinite(out[2 * kOutputs + n])) << n;
      EXPECT_TRUE(std::isfinite(out[3 * kOutputs + n]));
    }
    EXPECT_EQ(out[5], input.bias[5]);
  }
}

}  // namespace
}  // namespace foretoken::kernels::cuda
