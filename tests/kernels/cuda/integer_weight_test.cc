// SPDX-License-Identifier: Apache-2.0
// Weights of integers on a GPU: products and embedding rows are those of the bf16 matrix with the integers' values, bit
// for bit. If this test fails, a GPU server of a quantised checkpoint emits wrong tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/quantize.h"
#include "kernels/stored_matrix.h"
#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

using testing::RandomValues;

class RandomIntegers final : public StoredMatrix {
 public:
  RandomIntegers(int64_t num_outputs, int64_t num_inputs, const IntegerGroups& groups)
      : StoredMatrix(Shape(num_outputs, num_inputs)), groups_(groups) {
    RandomValues random(3);
    for (int64_t i = 0; i < num_outputs * num_inputs; ++i) {
      codes_.push_back(static_cast<uint8_t>(random.Uniform() * static_cast<float>(1 << groups.bits)));
    }
    const int64_t num_groups = num_outputs * num_inputs / groups.group_size;
    scales_ = random.Normals(num_groups, 0.01f);
    offsets_ = random.Normals(num_groups, groups.has_offsets ? 0.1f : 0.0f);
  }

  float Value(int64_t output, int64_t input) const {
    const int64_t i = output * shape()[1] + input, group = i / groups_.group_size;
    const auto code = static_cast<float>(codes_[i] - (1 << (groups_.bits - 1)));
    return FloatFromBf16(Bf16FromFloat(std::fma(scales_[group], code, offsets_[group])));
  }

  std::optional<IntegerGroups> groups() const override { return groups_; }
  void ReadValues(int64_t first_row, int64_t num_rows, float* values) const override {
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      for (int64_t i = 0; i < shape()[1]; ++i) *values++ = Value(row, i);
    }
  }
  void ReadGroups(int64_t first_row, int64_t num_rows, uint8_t* codes, float* scales, float* offsets) const override {
    const int64_t inputs = shape()[1], groups = inputs / groups_.group_size;
    std::copy_n(codes_.begin() + first_row * inputs, num_rows * inputs, codes);
    std::copy_n(scales_.begin() + first_row * groups, num_rows * groups, scales);
    if (groups_.has_offsets) std::copy_n(offsets_.begin() + first_row * groups, num_rows * groups, offsets);
  }

 private:
  IntegerGroups groups_;
  std::vector<uint8_t> codes_;
  std::vector<float> scales_, offsets_;
};

// A weight of integers and the bf16 weight with the same values.
struct Twins {
  std::unique_ptr<CudaWeight> integers;
  std::unique_ptr<CudaWeight> bf16;
};

class IntegerWeightTest : public OnDevice {
 protected:
  Twins Stored(std::span<const StoredPart> parts, std::optional<IndexRange> inputs = {}) {
    const int64_t num_inputs = parts[0].matrix->shape()[1];
    const IndexRange range = inputs.value_or(IndexRange{0, num_inputs});
    std::vector<float> values;
    int64_t num_outputs = 0;
    for (const StoredPart& part : parts) {
      std::vector<float> row(num_inputs);
      for (int64_t output = part.rows.begin; output < part.rows.end; ++output, ++num_outputs) {
        part.matrix->ReadValues(output, 1, row.data());
        values.insert(values.end(), row.begin() + range.begin, row.begin() + range.end);
      }
    }
    return {.integers = PrepareWeight({.stored = parts, .inputs = inputs}, device()),
            .bf16 = Prepare({values.data(), DType::kF32, Shape(num_outputs, range.size())})};
  }

  std::vector<float> Run(const CudaWeight& weight, int64_t num_rows, bool adds, MatMulKernel kernel) {
    std::vector<uint16_t> x;
    for (const float value : RandomValues(5).Normals(num_rows * weight.in_features())) {
      x.push_back(Bf16FromFloat(value));
    }
    const std::vector<float> bias = RandomValues(6).Normals(weight.out_features());
    std::vector<float> out = RandomValues(7).Normals(num_rows * weight.out_features());
    RunMatMul({.x = {x.data(), DType::kBF16, Shape(num_rows, weight.in_features())},
               .weight = &weight,
               .bias = adds ? bias.data() : nullptr,
               .mode = adds ? OutputMode::kAdd : OutputMode::kStore,
               .out = {out.data(), DType::kF32, Shape(num_rows, weight.out_features())}},
              kernel);
    return out;
  }

  void ExpectEqualProducts(const Twins& twins, std::initializer_list<int64_t> row_counts) {
    for (const int64_t num_rows : row_counts) {
      for (const bool adds : {false, true}) {
        for (const MatMulKernel kernel : MatMulKernels()) {
          ASSERT_EQ(Run(*twins.integers, num_rows, adds, kernel), Run(*twins.bf16, num_rows, adds, kernel))
              << num_rows << " rows";
        }
      }
    }
  }
};

TEST_F(IntegerWeightTest, HasTheProductsOfItsValues) {
  for (const int bits : {4, 8}) {
    for (const int64_t group_size : {16, 32, 48, 64, 128, 192}) {
      for (const bool has_offsets : {false, true}) {
        const RandomIntegers matrix(140, 2 * group_size,
                                    {.bits = bits, .group_size = group_size, .has_offsets = has_offsets});
        const StoredPart part{.matrix = &matrix, .rows = {0, 140}};
        ExpectEqualProducts(Stored({&part, 1}), {1, 13, 67});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(IntegerWeightTest, HasTheProductsOfItsValuesWithSplitsAndManyRows) {
  const RandomIntegers matrix(260, 1056, {.bits = 4, .group_size = 32, .has_offsets = true});
  const StoredPart part{.matrix = &matrix, .rows = {0, 260}};
  ExpectEqualProducts(Stored({&part, 1}), {2, 150});
}

TEST_F(IntegerWeightTest, StacksPartsAndTakesARangeOfInputs) {
  const RandomIntegers plain(60, 256, {.bits = 4, .group_size = 64}),
      offset(50, 256, {.bits = 4, .group_size = 64, .has_offsets = true});
  const std::vector<StoredPart> parts = {{.matrix = &plain, .rows = {3, 60}}, {.matrix = &offset, .rows = {0, 41}}};
  ExpectEqualProducts(Stored(parts), {1, 9});
  ExpectEqualProducts(Stored(parts, IndexRange{32, 160}), {1, 9});
  ExpectEqualProducts(Stored(parts, IndexRange{16, 160}), {1, 9});
  const RandomIntegers wide(50, 256, {.bits = 8, .group_size = 32});
  const std::vector<StoredPart> mixed = {{.matrix = &plain, .rows = {3, 60}}, {.matrix = &wide, .rows = {0, 41}}};
  ExpectEqualProducts(Stored(mixed), {1, 9});
}

TEST_F(IntegerWeightTest, GivesTheRowsOfItsValuesAsAnEmbedding) {
  for (const int bits : {4, 8}) {
    const RandomIntegers matrix(70, 96, {.bits = bits, .group_size = 32, .has_offsets = true});
    const StoredPart part{.matrix = &matrix, .rows = {0, 70}};
    const Twins twins = Stored({&part, 1});
    const std::vector<int32_t> token_ids = {69, 0, 17};
    std::vector<float> out(3 * 96);
    RunEmbed({.weight = twins.integers.get(),
              .token_ids = token_ids.data(),
              .out = {out.data(), DType::kF32, Shape(3, 96)}});
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], matrix.Value(token_ids[i / 96], static_cast<int64_t>(i) % 96)) << i;
    }
  }
}

// As the CPU rounds them, also where the inputs end within a group.
TEST_F(IntegerWeightTest, RoundsFloatsToTheSameIntegersAsTheCpu) {
  for (const auto kept_as : {WeightQuantization::kInt8, WeightQuantization::kInt4}) {
    for (const int64_t num_inputs : {128, 100, 75}) {
      constexpr int64_t kOutputs = 40, kGroup = 32;
      const int bits = kept_as == WeightQuantization::kInt8 ? 8 : 4;
      std::vector<float> values = RandomValues(8).Normals(kOutputs * num_inputs), rounded;
      for (float& value : values) value = FloatFromBf16(Bf16FromFloat(value));
      for (int64_t output = 0; output < kOutputs; ++output) {
        for (int64_t begin = 0; begin < num_inputs; begin += kGroup) {
          const int64_t count = std::min(kGroup, num_inputs - begin);
          std::vector<float> group(kGroup);
          std::copy_n(values.begin() + output * num_inputs + begin, count, group.begin());
          std::vector<uint8_t> codes(kGroup);
          const float scale = QuantizeGroup(group.data(), kGroup, bits, codes.data());
          for (int64_t i = 0; i < count; ++i) {
            rounded.push_back(scale * static_cast<float>(codes[i] - (1 << (bits - 1))));
          }
        }
      }
      const Shape shape(kOutputs, num_inputs);
      ExpectEqualProducts({.integers = Prepare({values.data(), DType::kF32, shape}, Quantization(kept_as, kGroup)),
                           .bf16 = Prepare({rounded.data(), DType::kF32, shape})},
                          {1, 20});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(IntegerWeightTest, TakesTheMemoryOfItsCodesAndScales) {
  const RandomIntegers matrix(256, 1024, {.bits = 4, .group_size = 128});
  const StoredPart part{.matrix = &matrix, .rows = {0, 256}};
  EXPECT_EQ(Stored({&part, 1}).integers->num_bytes(), 256 * 1024 / 2 + 256 * 8 * sizeof(float));
}

TEST(KeptGroups, AreOfAMultipleOf16InputsFromSuchAMultipleOn) {
  EXPECT_TRUE(KeptGroups({.bits = 4, .group_size = 32}, 0).has_value());
  EXPECT_TRUE(KeptGroups({.bits = 8, .group_size = 4864}, 96).has_value());
  EXPECT_TRUE(KeptGroups({.bits = 8, .group_size = 48}, 16).has_value());
  EXPECT_FALSE(KeptGroups({.bits = 8, .group_size = 24}, 0).has_value());
  EXPECT_FALSE(KeptGroups({.bits = 4, .group_size = 32}, 8).has_value());
  EXPECT_FALSE(KeptGroups({.bits = 3, .group_size = 32}, 0).has_value());
  EXPECT_EQ(KeptGroups({.bits = 6, .group_size = 16, .scale_dtype = DType::kF16, .blocks = ScaleBlocks{16, 0}}, 0),
            (IntegerGroups{.bits = 8, .group_size = 16}));
}

}  // namespace
}  // namespace foretoken::kernels::cuda
