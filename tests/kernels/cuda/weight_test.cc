// SPDX-License-Identifier: Apache-2.0
// The layout of weights on a GPU, and FP8 weights. If this test fails, a GPU server computes with wrong weights.
#include "kernels/cuda/matmul/weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "tests/kernels/cuda/on_device.h"
#include "tests/reference/e4m3.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

TEST(PackedWeight, HasAPlaceOfItsOwnForEveryElement) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kE4m3}) {
    const int64_t element_bytes = format == WeightFormat::kBf16 ? 2 : 1;
    const PackedWeight weight{.format = format, .num_outputs = 140, .num_inputs = 100};
    EXPECT_EQ(weight.num_bytes(), 256 * 128 * element_bytes);
    std::set<int64_t> offsets;
    for (int64_t output = 0; output < weight.num_outputs; ++output) {
      for (int64_t input = 0; input < weight.num_inputs; ++input) {
        const int64_t offset = weight.OffsetOf(output, input);
        ASSERT_TRUE(offset >= 0 && offset % element_bytes == 0 && offset < weight.num_bytes());
        ASSERT_TRUE(offsets.insert(offset).second) << output << ", " << input;
      }
    }
  }
}

// A slice of a panel is one run of memory, so a block can copy it at once.
TEST(PackedWeight, KeepsASliceOfAPanelTogether) {
  const PackedWeight weight{.format = WeightFormat::kBf16, .num_outputs = 300, .num_inputs = 200};
  for (int64_t output = 0; output < weight.num_outputs; ++output) {
    for (int64_t input = 0; input < weight.num_inputs; ++input) {
      ASSERT_EQ(weight.OffsetOf(output, input) / (16 << 10), output / 128 * 4 + input / 64);
    }
  }
}

using MatrixBytesTest = OnDevice;

// Of matrices whose padding is a good part of them, as of a rank's experts.
TEST_F(MatrixBytesTest, AreWhatAWeightTakes) {
  for (const Quantization& quantization :
       {Quantization(), Quantization(WeightQuantization::kFp8), Quantization(WeightQuantization::kInt8, 32),
        Quantization(WeightQuantization::kInt4, 128)}) {
    for (const Shape& shape : {Shape(140, 100), Shape(128, 64), Shape(1, 352)}) {
      const std::vector<float> values = testing::RandomValues(1).Normals(shape.num_elements());
      const auto weight = Prepare({values.data(), DType::kF32, shape}, quantization);
      const size_t fp8_scales = quantization.weights == WeightQuantization::kFp8 ? shape[0] * sizeof(float) : 0;
      EXPECT_EQ(MatrixBytes(shape, quantization, std::nullopt),
                weight->num_bytes() + fp8_scales + kMaxArrivals * sizeof(uint32_t));
    }
  }
}

class Fp8WeightTest : public OnDevice {
 protected:
  std::unique_ptr<CudaWeight> Quantise(const std::vector<float>& values, int64_t num_inputs) {
    const Shape shape(static_cast<int64_t>(values.size()) / num_inputs, num_inputs);
    return Prepare({values.data(), DType::kF32, shape}, WeightQuantization::kFp8);
  }
};

TEST_F(Fp8WeightTest, IsTheNearestCodeTimesTheOutputsScale) {
  constexpr int64_t kInputs = 90;
  std::vector<float> values;
  for (const float size : {1.0f, 1e-3f, 300.0f}) {
    for (const float value : testing::RandomValues(1).Normals(40 * kInputs)) {
      values.push_back(FloatFromBf16(Bf16FromFloat(size * value * value * value)));
    }
  }
  const std::vector<float> weight = DownloadWeight(*Quantise(values, kInputs));
  ASSERT_EQ(weight.size(), values.size());
  for (size_t row = 0; row < values.size(); row += kInputs) {
    const reference::E4m3Row expected = reference::QuantizeE4m3(std::span(values).subspan(row, kInputs));
    for (int64_t k = 0; k < kInputs; ++k) {
      ASSERT_EQ(weight[row + k], expected.codes[k] * expected.scale) << row / kInputs << ", " << k;
    }
  }
}

TEST_F(Fp8WeightTest, HasHalfTheBytes) {
  const std::vector<float> values(256 * 128, 1.0f);
  EXPECT_EQ(Quantise(values, 128)->num_bytes(), 256 * 128);
  EXPECT_EQ(Prepare({values.data(), DType::kF32, Shape(256, 128)})->num_bytes(), 2 * 256 * 128);
}

TEST_F(Fp8WeightTest, KeepsRowsOfZerosAndShowsNonFiniteValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {0, 0, 0, -0.0f, 2, kInfinity, kNan, 1, kInfinity, 3, 4, -448};
  const std::vector<float> weight = DownloadWeight(*Quantise(values, 2));
  for (const int i : {0, 1, 2, 3}) EXPECT_EQ(weight[i], 0);
  for (const int i : {4, 5, 6, 7, 8, 9}) EXPECT_FALSE(std::isfinite(weight[i])) << i;
  EXPECT_EQ(weight[10], 4);
  EXPECT_EQ(weight[11], -448);
}

TEST_F(Fp8WeightTest, EmbedsTheRowsThatItMultiplies) {
  const auto weight = Quantise(testing::RandomValues(2).Normals(10 * 70), 70);
  const std::vector<int32_t> ids = {9, 0, 9, 4};
  std::vector<float> rows(4 * 70);
  RunEmbed({.weight = weight.get(), .token_ids = ids.data(), .out = {rows.data(), DType::kF32, Shape(4, 70)}});
  const std::vector<float> elements = DownloadWeight(*weight);
  for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], elements[ids[i / 70] * 70 + i % 70]) << i;
}

}  // namespace
}  // namespace foretoken::kernels::cuda
