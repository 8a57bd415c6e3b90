// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/fp8.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "common/base/status_macros.h"
#include "common/quantization/scales.h"
#include "kernels/dtype.h"

namespace foretoken::quantization {
namespace {

using kernels::Shape;
using weights::StoredTensor;

constexpr BlockSize kUsualBlock = {.outputs = 128, .inputs = 128};

constexpr std::array<float, 256> MakeValues() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const bool is_nan = (code & 0x7f) == 0x7f;
    values[code] =
        is_nan ? std::numeric_limits<float>::quiet_NaN() : kernels::FloatFromE4m3(static_cast<uint8_t>(code));
  }
  return values;
}

constexpr std::array<float, 256> kValues = MakeValues();

class Fp8Matrix : public kernels::StoredMatrix {
 public:
  Fp8Matrix(const Shape& shape, const StoredTensor& codes, const StoredTensor& scales, const BlockSize& block)
      : StoredMatrix(shape), codes_(codes), scales_(scales), block_(block) {}

  void ReadValues(int64_t first_row, int64_t num_rows, float* values) const override {
    const int64_t num_inputs = shape()[1];
    const int64_t scales_per_row = (num_inputs + block_.inputs - 1) / block_.inputs;
    const auto* codes = reinterpret_cast<const uint8_t*>(codes_.bytes.data());
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      for (int64_t begin = 0, i = 0; begin < num_inputs; begin += block_.inputs) {
        const float scale = scales_[row / block_.outputs * scales_per_row + begin / block_.inputs];
        const int64_t end = std::min(num_inputs, begin + block_.inputs);
        for (; i < end; ++i) *values++ = kValues[codes[row * num_inputs + i]] * scale;
      }
    }
  }

 private:
  const StoredTensor& codes_;
  ScaleReader scales_;
  BlockSize block_;
};

// The block that the shape of the scales stands for. A declared size comes first, because other sizes may have as many
// blocks.
std::optional<BlockSize> FindBlock(const StoredTensor& scales, const Shape& shape, const QuantizationConfig& config) {
  using Dims = std::vector<int64_t>;
  const int64_t num_outputs = shape[0], num_inputs = shape[1];
  Dims dims = scales.shape;
  if (dims.size() == 4 && dims[1] == 1 && dims[3] == 1) dims = {dims[0], dims[2]};  // ModelOpt's FP8_PB_WO
  if (dims.empty() || dims == Dims{1} || dims == Dims{1, 1}) {
    return BlockSize{.outputs = num_outputs, .inputs = num_inputs};
  }
  if (dims == Dims{num_outputs} || dims == Dims{num_outputs, 1}) {
    return BlockSize{.outputs = 1, .inputs = num_inputs};
  }
  std::vector<BlockSize> sizes = config.block_sizes;
  for (const int64_t size : config.group_sizes) sizes.push_back({.outputs = 1, .inputs = size});
  sizes.push_back(kUsualBlock);
  for (const BlockSize& size : sizes) {
    const Dims expected = {(num_outputs + size.outputs - 1) / size.outputs,
                           (num_inputs + size.inputs - 1) / size.inputs};
    if (dims == expected) return size;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<FoundWeight> OpenFp8(TensorSet tensors, const Shape& shape, const QuantizationConfig& config) {
  FT_ASSIGN_OR_RETURN(const StoredTensor* codes, tensors.Take("weight", {"F8_E4M3"}, {shape[0], shape[1]}));
  const char* part = tensors.Find("weight_scale_inv") != nullptr ? "weight_scale_inv" : "weight_scale";
  const StoredTensor* scales = tensors.Find(part);
  const std::optional<BlockSize> block = scales != nullptr ? FindBlock(*scales, shape, config) : kUsualBlock;
  if (!block) {
    return tensors.Error(part, "expected a scale for the tensor, one for each of ", shape[0],
                         " outputs, or one for each block of a declared size or of 128 x 128 of [", shape[0], ", ",
                         shape[1], "], got ", Describe(*scales));
  }
  const std::vector<int64_t> expected = scales != nullptr ? scales->shape : std::vector<int64_t>{shape[0], 1};
  FT_RETURN_IF_ERROR(tensors.Take(part, {"F32", "F16", "BF16", "F8_E8M0"}, expected).status());
  return FoundWeight{.stored = std::make_unique<Fp8Matrix>(shape, *codes, *scales, *block),
                     .format = absl::StrCat("fp8, blocks of ", block->outputs, " x ", block->inputs),
                     .tensors = tensors.taken()};
}

}  // namespace foretoken::quantization
