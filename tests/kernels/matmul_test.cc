// SPDX-License-Identifier: Apache-2.0
// Matrix products on the CPU: against the reference, and row invariance (E1), on every instruction set. If this test
// fails, a CPU server emits wrong tokens, or tokens that depend on other requests.
#include "kernels/cpu/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/matmul/matmul_amx_tile.h"
#include "kernels/cpu/matmul/weight.h"
#include "tests/reference/matmul.h"
#include "tests/testing/cases/emulated_tiles.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using reference::MatMulInput;
using reference::MatMulResult;

// Values that bf16 holds exactly.
std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::vector<float> values = testing::RandomValues(seed).Normals(count);
  for (float& value : values) value = FloatFromBf16(Bf16FromFloat(value));
  return values;
}

std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(Bf16FromFloat(value));
  return bits;
}

MatMulInput RandomInput(int64_t num_rows, int64_t num_outputs, int64_t num_inputs) {
  return {.num_rows = num_rows,
          .num_outputs = num_outputs,
          .num_inputs = num_inputs,
          .x = ToBf16(RandomFloats(num_rows * num_inputs, 1)),
          .weight = RandomFloats(num_outputs * num_inputs, 2),
          .bias = {},
          .previous = {}};
}

std::unique_ptr<CpuWeight> Prepare(const MatMulInput& input, ThreadPool& pool) {
  const ConstTensorView part = {input.weight.data(), DType::kF32, Shape(input.num_outputs, input.num_inputs)};
  return PrepareWeight({.parts = {&part, 1}, .release = nullptr}, pool);
}

// An arithmetic under test: an isa of this machine, or AMX's tile logic on emulated tiles.
struct Arithmetic {
  std::string name;
  std::optional<Isa> isa;
};

std::vector<Arithmetic> Arithmetics() {
  std::vector<Arithmetic> all = {{"amx_emulated", std::nullopt}};
  for (const Isa isa : SupportedIsas()) all.push_back({Name(isa), isa});
  return all;
}

class MatMulTest : public ::testing::TestWithParam<Arithmetic> {
 protected:
  const MatMulKernel& kernel() const {
    return GetParam().isa ? KernelOf(*GetParam().isa) : AmxTile<foretoken::testing::EmulatedTiles>::kKernel;
  }

  std::vector<float> Run(const MatMulInput& input, const CpuWeight& weight, ThreadPool& pool) {
    std::vector<float> out = input.previous;
    out.resize(input.num_rows * input.num_outputs, std::numeric_limits<float>::quiet_NaN());
    MatMul({.x = {input.x.data(), DType::kBF16, Shape(input.num_rows, input.num_inputs)},
            .weight = &weight,
            .bias = input.bias.empty() ? nullptr : input.bias.data(),
            .mode = input.previous.empty() ? OutputMode::kStore : OutputMode::kAdd,
            .out = {out.data(), DType::kF32, Shape(input.num_rows, input.num_outputs)}},
           kernel(), scratch_, pool);
    return out;
  }

  // Products of bf16 are exact in f32. A sum has at most K + 4 roundings (the chain, AMX's two partial sums, bias,
  // previous). So its error is at most gamma = n u / (1 - n u) of the sum of magnitudes, u = 2^-24 (Higham, "Accuracy
  // and Stability of Numerical Algorithms", section 3.1). Each rounding may also flush a denormal, below 2^-126, to
  // zero.
  void ExpectClose(const MatMulInput& input, const std::vector<float>& out) {
    const double n = static_cast<double>(input.num_inputs) + 4;
    const double gamma = n * 0x1p-24 / (1 - n * 0x1p-24);
    const MatMulResult expected = reference::MatMul(input);
    ASSERT_EQ(out.size(), expected.sums.size());
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], expected.sums[i], gamma * expected.magnitudes[i] + n * 0x1p-126)
          << "row " << i / input.num_outputs << " output " << i % input.num_outputs;
    }
  }

  void ExpectCloseTo(const MatMulInput& input) {
    SCOPED_TRACE(::testing::Message() << "T " << input.num_rows << " N " << input.num_outputs << " K "
                                      << input.num_inputs);
    ExpectClose(input, Run(input, *Prepare(input, pool_), pool_));
  }

  std::optional<IsaPin> pin_ = GetParam().isa ? IsaPin::Make(*GetParam().isa) : std::nullopt;
  ThreadPool pool_{2};
  Pages scratch_;
};

TEST_P(MatMulTest, AgreesWithTheReferenceForEveryRowCount) {
  for (int64_t num_rows = 1; num_rows <= 70; ++num_rows) ExpectCloseTo(RandomInput(num_rows, 80, 64));
}

TEST_P(MatMulTest, AgreesWithTheReferenceForOddShapes) {
  for (const int64_t num_outputs : {1, 15, 17, 50, 129}) {
    for (const int64_t num_inputs : {1, 2, 31, 33, 75, 200}) {
      for (const int64_t num_rows : {1, 7, 19, 40}) ExpectCloseTo(RandomInput(num_rows, num_outputs, num_inputs));
    }
  }
}

TEST_P(MatMulTest, AgreesWithTheReferenceForLongSums) {
  ExpectCloseTo(RandomInput(1, 100, 8192));
  ExpectCloseTo(RandomInput(20, 33, 4099));
}

TEST_P(MatMulTest, AgreesWithTheReferenceForManyRows) { ExpectCloseTo(RandomInput(512, 97, 96)); }

TEST_P(MatMulTest, WritesNothingForNoRows) { ExpectCloseTo(RandomInput(0, 20, 32)); }

TEST_P(MatMulTest, AddsBiasAndPreviousOutput) {
  for (const int64_t num_rows : {1, 5, 33}) {
    MatMulInput input = RandomInput(num_rows, 45, 70);
    input.bias = RandomFloats(45, 3);
    ExpectCloseTo(input);
    input.previous = RandomFloats(num_rows * 45, 4);
    ExpectCloseTo(input);
    input.bias.clear();
    ExpectCloseTo(input);
  }
}

TEST_P(MatMulTest, AddsTheFinishedSumToThePreviousOutputOnce) {
  MatMulInput input = RandomInput(9, 40, 333);
  input.bias = RandomFloats(40, 3);
  const auto weight = Prepare(input, pool_);
  const std::vector<float> sums = Run(input, *weight, pool_);
  input.previous = RandomFloats(sums.size(), 4);
  const std::vector<float> out = Run(input, *weight, pool_);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], input.previous[i] + sums[i]);
}

TEST_P(MatMulTest, PaddingDoesNotMeetANeighboursInfinity) {
  MatMulInput input = RandomInput(3, 20, 33);
  for (int64_t k = 0; k < 33; ++k) input.x[33 + k] = Bf16FromFloat(std::numeric_limits<float>::infinity());
  const std::vector<float> out = Run(input, *Prepare(input, pool_), pool_);
  for (int64_t n = 0; n < 20; ++n) {
    EXPECT_TRUE(std::isfinite(out[n]));
    EXPECT_FALSE(std::isfinite(out[20 + n]));
    EXPECT_TRUE(std::isfinite(out[40 + n]));
  }
}

// E1: a row has the same bits with any neighbours, at any place, and on any number of threads.
TEST_P(MatMulTest, ARowDoesNotDependOnItsNeighbours) {
  constexpr int64_t kRows = 300, kOutputs = 35, kInputs = 2115;  // more than one range of inputs
  const MatMulInput all = RandomInput(kRows, kOutputs, kInputs);
  const auto weight = Prepare(all, pool_);
  const std::vector<float> expected = Run(all, *weight, pool_);
  ThreadPool one(1);
  for (ThreadPool* pool : {&one, &pool_}) {
    for (const int64_t num_rows : {1, 2, 3, 5, 8, 12, 13, 16, 17, 31, 33, 64, 300}) {
      for (const int64_t first : {int64_t{0}, int64_t{77}, kRows - num_rows}) {
        if (first != 0 && num_rows > 64) continue;
        MatMulInput some = all;
        some.num_rows = num_rows;
        some.x.assign(all.x.begin() + first * kInputs, all.x.begin() + (first + num_rows) * kInputs);
        const std::vector<float> out = Run(some, *weight, *pool);
        ASSERT_EQ(std::memcmp(out.data(), expected.data() + first * kOutputs, out.size() * sizeof(float)), 0)
            << num_rows << " rows from " << first << " on " << pool->num_threads() << " threads";
      }
    }
  }
}

// The same for tasks of several tiles of panels and several ranges of inputs.
TEST_P(MatMulTest, ARowOfAWideMatrixDoesNotDependOnItsNeighbours) {
  constexpr int64_t kRows = 34, kOutputs = 1100, kInputs = 1100;
  const MatMulInput all = RandomInput(kRows, kOutputs, kInputs);
  const auto weight = Prepare(all, pool_);
  const std::vector<float> expected = Run(all, *weight, pool_);
  ExpectClose(all, expected);
  for (const int64_t row : {int64_t{0}, int64_t{17}, kRows - 1}) {
    MatMulInput one = all;
    one.num_rows = 1;
    one.x.assign(all.x.begin() + row * kInputs, all.x.begin() + (row + 1) * kInputs);
    const std::vector<float> out = Run(one, *weight, pool_);
    ASSERT_EQ(std::memcmp(out.data(), expected.data() + row * kOutputs, out.size() * sizeof(float)), 0) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, MatMulTest, ::testing::ValuesIn(Arithmetics()),
                         [](const auto& info) { return info.param.name; });

TEST(AmxKernel, HasTheBitsOfItsEmulation) {
  if (SupportedIsas().front() != Isa::kAmx) GTEST_SKIP() << "this machine has no AMX";
  ThreadPool pool(2);
  Pages scratch;
  for (const int64_t num_rows : {1, 16, 17, 40}) {
    const MatMulInput input = RandomInput(num_rows, 70, 500);
    const auto weight = Prepare(input, pool);
    const auto run = [&](const MatMulKernel& kernel) {
      std::vector<float> out(num_rows * 70);
      MatMul({.x = {input.x.data(), DType::kBF16, Shape(num_rows, 500)},
              .weight = weight.get(),
              .out = {out.data(), DType::kF32, Shape(num_rows, 70)}},
             kernel, scratch, pool);
      return out;
    };
    EXPECT_EQ(run(KernelOf(Isa::kAmx)), run(AmxTile<foretoken::testing::EmulatedTiles>::kKernel));
  }
}

}  // namespace
}  // namespace foretoken::kernels::cpu
