// SPDX-License-Identifier: Apache-2.0
// FP8 rows. If this test fails, a server with FP8 weights emits worse tokens, or tokens that depend on other requests.
#include "kernels/cuda/matmul/quantize_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "tests/kernels/cuda/on_device.h"
#include "tests/reference/e4m3.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

using testing::kInfinity;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct HostRows {
  std::vector<uint8_t> codes;  // [T, row_bytes]
  int64_t row_bytes = 0;
  std::vector<float> scales;  // [T]

  std::span<const uint8_t> row(int64_t i) const { return std::span(codes).subspan(i * row_bytes, row_bytes); }
};

std::vector<uint16_t> AsBf16(const std::vector<float>& values) {
  std::vector<uint16_t> rounded;
  rounded.reserve(values.size());
  for (const float value : values) rounded.push_back(Bf16FromFloat(value));
  return rounded;
}

class QuantizedRowsTest : public OnDevice {
 protected:
  // Quantises values that lie `begin` elements behind an aligned address.
  HostRows Quantize(const std::vector<uint16_t>& x, int64_t num_inputs, int64_t begin = 0) {
    const int64_t num_rows = static_cast<int64_t>(x.size()) / num_inputs;
    const Buffer buffer = device().Allocate((begin + x.size()) * sizeof(uint16_t));
    uint16_t* const on_device = static_cast<uint16_t*>(buffer.get()) + begin;
    device().Copy(on_device, x.data(), x.size() * sizeof(uint16_t), CopyKind::kToDevice);
    const QuantizedRows rows({on_device, DType::kBF16, Shape(num_rows, num_inputs)}, device().stream());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(rows.codes()) % 16, 0);
    HostRows host{.codes = std::vector<uint8_t>(num_rows * rows.row_bytes()),
                  .row_bytes = rows.row_bytes(),
                  .scales = std::vector<float>(num_rows)};
    device().Copy(host.codes.data(), rows.codes(), host.codes.size(), CopyKind::kToHost);
    device().Copy(host.scales.data(), rows.scales(), num_rows * sizeof(float), CopyKind::kToHost);
    device().Synchronize();
    return host;
  }
};

TEST_F(QuantizedRowsTest, AreTheNearestCodesTimesTheRowsScale) {
  for (const int64_t num_inputs : {1, 7, 8, 63, 64, 65, 200, 2056, 4099}) {
    for (const int64_t begin : {0, 1}) {
      SCOPED_TRACE(::testing::Message() << "K " << num_inputs << " from element " << begin);
      std::vector<float> values;
      for (const float size : {1.0f, 1e-3f, 3e4f}) {
        for (const float value : testing::RandomValues(1).Normals(num_inputs)) {
          values.push_back(FloatFromBf16(Bf16FromFloat(size * value * value * value)));
        }
      }
      const HostRows rows = Quantize(AsBf16(values), num_inputs, begin);
      ASSERT_EQ(rows.row_bytes, (num_inputs + 63) / 64 * 64);
      for (int64_t i = 0; i < 3; ++i) {
        const auto expected = reference::QuantizeE4m3(std::span(values).subspan(i * num_inputs, num_inputs));
        ASSERT_EQ(rows.scales[i], expected.scale);
        for (int64_t k = 0; k < rows.row_bytes; ++k) {
          const float code = FloatFromE4m3(rows.row(i)[k]);
          ASSERT_EQ(code, k < num_inputs ? expected.codes[k] : 0) << "row " << i << " input " << k;
        }
      }
    }
  }
}

TEST_F(QuantizedRowsTest, OfZerosAreZeros) {
  const HostRows rows = Quantize(AsBf16({0, -0.0f, 0, 0, 0, 0}), 3);
  EXPECT_EQ(rows.scales, (std::vector<float>{0, 0}));
  for (const uint8_t code : rows.codes) EXPECT_EQ(FloatFromE4m3(code), 0);
}

// A product with a scale that is not finite is not finite either.
TEST_F(QuantizedRowsTest, ShowNonFiniteValuesByTheScaleAlone) {
  const HostRows rows = Quantize(AsBf16({1, kInfinity, 3, kNan, -kInfinity, 5, 7, 8, -kNan, 1, 2, 4}), 3);
  for (const int i : {0, 1, 2}) {
    EXPECT_FALSE(std::isfinite(rows.scales[i])) << i;
    for (const uint8_t code : rows.row(i)) EXPECT_EQ(code, 0) << i;
  }
  EXPECT_EQ(rows.scales[3], 4.0f / 448);
}

TEST_F(QuantizedRowsTest, LoseValuesThatAnOutlierMakesSmall) {
  const HostRows rows = Quantize(AsBf16({448 * 1024, 1024, -1.5f, 0.5f}), 4);
  EXPECT_EQ(rows.scales[0], 1024);
  EXPECT_EQ(FloatFromE4m3(rows.codes[0]), 448);
  EXPECT_EQ(FloatFromE4m3(rows.codes[1]), 1);
  EXPECT_EQ(FloatFromE4m3(rows.codes[2]), -0x1p-9f);
  EXPECT_EQ(FloatFromE4m3(rows.codes[3]), 0);
}

// From the smallest bf16 to the largest: a scale has at least 8 bits, so a code's error is at most a 16th and a 256th.
TEST_F(QuantizedRowsTest, HoldDenormalsAndTheLargest) {
  const float denormal = FloatFromBf16(1), largest = FloatFromBf16(0x7f7f);
  const std::vector<float> values = {denormal, 3 * denormal, -7 * denormal, largest, largest / 3, -largest / 200};
  const std::vector<uint16_t> x = AsBf16(values);
  const HostRows rows = Quantize(x, 3);
  for (size_t i = 0; i < x.size(); ++i) {
    const float value = FloatFromBf16(x[i]), read = FloatFromE4m3(rows.row(i / 3)[i % 3]) * rows.scales[i / 3];
    EXPECT_NEAR(read / value, 1, 1.0 / 16 + 1.0 / 128) << value;
  }
}

TEST_F(QuantizedRowsTest, DoNotDependOnTheirNeighbours) {
  constexpr int64_t kInputs = 77, kRows = 9;
  std::vector<float> values = testing::RandomValues(3).Normals(kRows * kInputs);
  for (int64_t k = 0; k < kInputs; ++k) values[4 * kInputs + k] *= 1e30f;
  values[6 * kInputs] = kNan;
  const std::vector<uint16_t> x = AsBf16(values);
  const HostRows all = Quantize(x, kInputs);
  for (const int64_t row : {0, 3, 5, 7, 8}) {
    const HostRows alone = Quantize({x.begin() + row * kInputs, x.begin() + (row + 1) * kInputs}, kInputs);
    EXPECT_EQ(alone.scales[0], all.scales[row]);
    EXPECT_TRUE(std::ranges::equal(alone.row(0), all.row(row))) << row;
  }
}

}  // namespace
}  // namespace foretoken::kernels::cuda
