// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/awq.h"

#include <array>
#include <utility>

#include "common/base/status_macros.h"
#include "common/quantization/column_matrix.h"

namespace foretoken::quantization {
namespace {

using kernels::Shape;
using weights::StoredTensor;

constexpr int kAwqBits = 4;
constexpr int kCodesPerWord = 8;
// The nibble of each of a word's outputs.
constexpr std::array<int, kCodesPerWord> kNibbles = {0, 4, 1, 5, 2, 6, 3, 7};

class AwqMatrix : public ColumnMatrix {
 public:
  AwqMatrix(const Shape& shape, IntegerLayout layout, const Tensors& tensors)
      : ColumnMatrix(shape, std::move(layout), tensors) {}

 private:
  static uint32_t WordAt(const StoredTensor& words, int64_t line, int64_t output) {
    return ElementAt<uint32_t>(words, line * words.shape[1] + output / kCodesPerWord);
  }
  static uint8_t CodeOf(uint32_t word, int64_t output) {
    return static_cast<uint8_t>(word >> (kNibbles[output % kCodesPerWord] * kAwqBits) & 0xf);
  }

  void ReadCodes(const Rows& rows, uint8_t* codes) const override {
    const int64_t num_inputs = shape()[1];
    for (int64_t input = 0; input < num_inputs; ++input) {
      uint32_t word = 0;
      for (int64_t row = 0; row < rows.count; ++row) {
        const int64_t output = rows.first + row;
        if (row == 0 || output % kCodesPerWord == 0) word = WordAt(*tensors().codes, input, output);
        codes[row * num_inputs + input] = CodeOf(word, output);
      }
    }
  }

  void ReadZeros(const Rows& rows, int32_t* zeros) const override {
    const int64_t num_groups = layout().groups.num_groups();
    for (int64_t i = 0; i < rows.count * num_groups; ++i) {
      const int64_t output = rows.first + i / num_groups;
      zeros[i] = CodeOf(WordAt(*tensors().zeros, i % num_groups, output), output);
    }
  }
};

}  // namespace

bool IsAwq(const StoredTensor& qweight, const Shape& shape) {
  return shape[0] % kCodesPerWord == 0 && qweight.shape == std::vector<int64_t>{shape[1], shape[0] / kCodesPerWord};
}

absl::StatusOr<FoundWeight> OpenAwq(TensorSet tensors, const Shape& shape, const QuantizationConfig& config) {
  const int64_t num_outputs = shape[0], num_inputs = shape[1];
  ColumnMatrix::Tensors stored;
  FT_ASSIGN_OR_RETURN(stored.codes, tensors.Take("qweight", {"I32"}, {num_inputs, num_outputs / kCodesPerWord}));
  const StoredTensor* scales = tensors.Find("scales");
  const int64_t num_groups = scales != nullptr && !scales->shape.empty() ? scales->shape[0] : 1;
  FT_ASSIGN_OR_RETURN(stored.scales, tensors.Take("scales", {"F32", "F16", "BF16"}, {num_groups, num_outputs}));
  // AWQ never reorders inputs.
  FT_ASSIGN_OR_RETURN(InputGroups groups, InputGroups::Make(tensors, "", "scales", {num_inputs, num_groups}, config));
  FT_ASSIGN_OR_RETURN(stored.zeros, tensors.Take("qzeros", {"I32"}, {num_groups, num_outputs / kCodesPerWord}));
  IntegerLayout layout = {.bits = kAwqBits,
                          .groups = std::move(groups),
                          .has_zeros = true,
                          .scale_dtype = ScaleReader(*stored.scales).dtype()};
  std::string format = absl::StrCat("awq, groups of ", layout.groups.group_size());
  auto matrix = std::make_unique<AwqMatrix>(shape, std::move(layout), stored);
  matrix->ForgetCentralZeros();
  return FoundWeight{.stored = std::move(matrix), .format = std::move(format), .tensors = tensors.taken()};
}

}  // namespace foretoken::quantization
