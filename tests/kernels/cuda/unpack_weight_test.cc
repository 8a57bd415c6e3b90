// SPDX-License-Identifier: Apache-2.0
// Unpacking of weights for cuBLASLt. If this test fails, products by the library are refused, and long prompts take
// longer.
#include "kernels/cuda/matmul/unpack_weight.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::kernels::cuda {
namespace {

class UnpackRowsTest : public OnDevice {
 protected:
  void ExpectRowsAsTheyCame(int64_t num_outputs, int64_t num_inputs, IndexRange outputs) {
    std::vector<uint16_t> weight;
    for (const float value : testing::RandomValues(1).Normals(num_outputs * num_inputs)) {
      weight.push_back(Bf16FromFloat(value));
    }
    const auto packed = Prepare({weight.data(), DType::kBF16, Shape(num_outputs, num_inputs)});
    std::vector<uint16_t> rows((outputs.size() + 1) * num_inputs, 0x1234);
    const size_t num_bytes = rows.size() * sizeof(uint16_t);
    const Buffer unpacked = device().Allocate(num_bytes);
    device().Copy(unpacked.get(), rows.data(), num_bytes, CopyKind::kToDevice);
    UnpackRows(packed->packed(), outputs, static_cast<uint16_t*>(unpacked.get()), device().stream());
    device().Copy(rows.data(), unpacked.get(), num_bytes, CopyKind::kToHost);
    device().Synchronize();
    const int64_t count = outputs.size() * num_inputs;
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(rows[i], weight[outputs.begin * num_inputs + i]) << i / num_inputs << ", " << i % num_inputs;
    }
    for (int64_t i = count; i < count + num_inputs; ++i) ASSERT_EQ(rows[i], 0x1234) << "beyond the last output";
  }
};

TEST_F(UnpackRowsTest, GivesTheRowsThatWerePacked) {
  ExpectRowsAsTheyCame(128, 64, {0, 128});
  ExpectRowsAsTheyCame(256, 192, {0, 256});
}

TEST_F(UnpackRowsTest, TakesPanelsFromTheMiddleAndWritesNothingBeyondTheLastOutput) {
  ExpectRowsAsTheyCame(400, 128, {128, 384});
  ExpectRowsAsTheyCame(300, 128, {256, 300});
  ExpectRowsAsTheyCame(12, 64, {0, 12});
}

}  // namespace
}  // namespace foretoken::kernels::cuda
