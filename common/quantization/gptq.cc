// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/gptq.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/quantization/column_matrix.h"

namespace foretoken::quantization {
namespace {

using kernels::Shape;
using weights::StoredTensor;

class GptqMatrix : public ColumnMatrix {
 public:
  // `word_shift` is the difference between a word of zero points and the stored word.
  GptqMatrix(const Shape& shape, IntegerLayout layout, const Tensors& tensors, uint32_t word_shift)
      : ColumnMatrix(shape, std::move(layout), tensors), word_shift_(word_shift) {}

 private:
  void ReadCodes(const Rows& rows, uint8_t* codes) const override {
    const int64_t num_outputs = shape()[0], num_inputs = shape()[1];
    const int bits = layout().bits, codes_per_word = 32 / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t input = 0; input < num_inputs; input += codes_per_word) {
      for (int64_t row = 0; row < rows.count; ++row) {
        const auto word =
            ElementAt<uint32_t>(*tensors().codes, input / codes_per_word * num_outputs + rows.first + row);
        uint8_t* out = codes + row * num_inputs + input;
        for (int i = 0; i < codes_per_word; ++i) out[i] = static_cast<uint8_t>(word >> (i * bits) & mask);
      }
    }
  }

  void ReadZeros(const Rows& rows, int32_t* zeros) const override {
    const int64_t num_groups = layout().groups.num_groups(), words_per_group = tensors().zeros->shape[1];
    const int bits = layout().bits, codes_per_word = 32 / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t row = 0; row < rows.count; ++row) {
      const int64_t output = rows.first + row;
      for (int64_t group = 0; group < num_groups; ++group) {
        const auto stored = ElementAt<uint32_t>(*tensors().zeros, group * words_per_group + output / codes_per_word);
        const uint32_t word = stored + word_shift_;  // modulo 2^32
        zeros[row * num_groups + group] = static_cast<int32_t>(word >> (output % codes_per_word * bits) & mask);
      }
    }
  }

  uint32_t word_shift_;
};

}  // namespace

absl::StatusOr<FoundWeight> OpenGptq(TensorSet tensors, const Shape& shape, const QuantizationConfig& config) {
  const int64_t num_outputs = shape[0], num_inputs = shape[1];
  const StoredTensor& packed = *tensors.Find("qweight");
  const int64_t num_words = packed.shape.empty() ? 0 : packed.shape[0];
  const int bits = num_words * 32 == num_inputs * 8 ? 8 : 4;
  if (num_words * 32 != num_inputs * bits || num_outputs * bits % 32 != 0) {
    return tensors.Error(
        "qweight", "expected 4 or 8 bits for each of ", num_outputs, " outputs and ", num_inputs,
        " inputs, as words of GPTQ [inputs * bits / 32, outputs] or of AWQ [inputs, outputs / 8], got ",
        Describe(packed));
  }
  ColumnMatrix::Tensors stored;
  FT_ASSIGN_OR_RETURN(stored.codes, tensors.Take("qweight", {"I32"}, {num_words, num_outputs}));
  const StoredTensor* scales = tensors.Find("scales");
  const int64_t num_groups = scales != nullptr && !scales->shape.empty() ? scales->shape[0] : 1;
  FT_ASSIGN_OR_RETURN(stored.scales, tensors.Take("scales", {"F32", "F16", "BF16"}, {num_groups, num_outputs}));
  FT_ASSIGN_OR_RETURN(InputGroups groups,
                      InputGroups::Make(tensors, "g_idx", "scales", {num_inputs, num_groups}, config));
  FT_ASSIGN_OR_RETURN(stored.zeros, tensors.Take("qzeros", {"I32"}, {num_groups, num_outputs * bits / 32}));
  IntegerLayout layout = {
      .bits = bits, .groups = std::move(groups), .has_zeros = true, .scale_dtype = ScaleReader(*stored.scales).dtype()};
  std::string format =
      absl::StrCat(config.is_gptq_v2 ? "gptq_v2, " : "gptq, ", bits, " bits, groups of ", layout.groups.group_size());
  // The first version stores zero points less 1. Its writer subtracts the ones from whole words, so a zero point of 0
  // borrows from its neighbour, and the addition undoes that.
  const uint32_t ones = bits == 8 ? 0x01010101 : 0x11111111;
  auto matrix = std::make_unique<GptqMatrix>(shape, std::move(layout), stored, config.is_gptq_v2 ? 0 : ones);
  matrix->ForgetCentralZeros();
  return FoundWeight{.stored = std::move(matrix), .format = std::move(format), .tensors = tensors.taken()};
}

}  // namespace foretoken::quantization
