// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/pack_quantized.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/quantization/integer_matrix.h"
#include "common/quantization/scales.h"

namespace foretoken::quantization {
namespace {

using kernels::Shape;
using weights::StoredTensor;

constexpr int kMaxBits = 8;

int64_t NumWords(int64_t num_codes, int bits) { return (num_codes * bits + 31) / 32; }

// Code i of a column of words: bits i * bits and up of the words' string of bits.
uint8_t CodeAt(const StoredTensor& words, int64_t column, int64_t i, int bits) {
  const int64_t num_columns = words.shape[1];
  const int64_t word = i * bits / 32, shift = i * bits % 32;
  uint64_t window = ElementAt<uint32_t>(words, word * num_columns + column);
  if (shift + bits > 32) {
    window |= static_cast<uint64_t>(ElementAt<uint32_t>(words, (word + 1) * num_columns + column)) << 32;
  }
  return static_cast<uint8_t>(window >> shift & ((1u << bits) - 1));
}

class PackQuantizedMatrix : public IntegerMatrix {
 public:
  struct Tensors {
    const StoredTensor* packed = nullptr;
    const StoredTensor* scales = nullptr;
    const StoredTensor* zeros = nullptr;  // null: none
  };
  PackQuantizedMatrix(const Shape& shape, IntegerLayout layout, const Tensors& tensors)
      : IntegerMatrix(shape, std::move(layout)), tensors_(tensors) {}

 private:
  void ReadCodes(const Rows& rows, uint8_t* codes) const override {
    const int64_t num_inputs = shape()[1];
    const int64_t row_bytes = tensors_.packed->shape[1] * 4;
    for (int64_t row = 0; row < rows.count; ++row) {
      ReadRow(reinterpret_cast<const uint8_t*>(tensors_.packed->bytes.data()) + (rows.first + row) * row_bytes,
              row_bytes, codes + row * num_inputs);
    }
  }

  // The words are little-endian, so a row's string of bits is also that of its bytes.
  void ReadRow(const uint8_t* bytes, int64_t row_bytes, uint8_t* codes) const {
    const int64_t num_inputs = shape()[1];
    const int bits = layout().bits;
    if (bits == 8) {
      std::copy_n(bytes, num_inputs, codes);
    } else if (bits == 4) {
      int64_t i = 0;
      for (; i + 8 <= num_inputs; i += 8) {  // code k of eight, four bits, goes to byte k
        uint32_t word = 0;
        std::memcpy(&word, bytes + i / 2, sizeof(word));
        uint64_t eight = (word | uint64_t{word} << 16) & 0x0000ffff0000ffffu;
        eight = (eight | eight << 8) & 0x00ff00ff00ff00ffu;
        eight = (eight | eight << 4) & 0x0f0f0f0f0f0f0f0fu;
        std::memcpy(codes + i, &eight, sizeof(eight));
      }
      for (; i < num_inputs; ++i) codes[i] = bytes[i / 2] >> (i % 2 * 4) & 0xf;
    } else {
      for (int64_t i = 0; i < num_inputs; ++i) {
        const int64_t at = i * bits / 8;
        const uint32_t window = bytes[at] | (at + 1 < row_bytes ? bytes[at + 1] << 8 : 0);
        codes[i] = static_cast<uint8_t>(window >> (i * bits % 8) & ((1u << bits) - 1));
      }
    }
  }

  void ReadScales(const Rows& rows, float* scales) const override {
    const int64_t num_groups = layout().groups.num_groups();
    const ScaleReader reader(*tensors_.scales);
    for (int64_t i = 0; i < rows.count * num_groups; ++i) scales[i] = reader[rows.first * num_groups + i];
  }

  void ReadZeros(const Rows& rows, int32_t* zeros) const override {
    const int64_t num_groups = layout().groups.num_groups();
    for (int64_t i = 0; i < rows.count * num_groups; ++i) {
      zeros[i] = CodeAt(*tensors_.zeros, i % num_groups, rows.first + i / num_groups, layout().bits);
    }
  }

  Tensors tensors_;
};

// The width of the packed tensor gives the bits. Where several fit, which only very narrow matrices allow, the declared
// ones among them count.
absl::StatusOr<int> FindBits(const TensorSet& tensors, int64_t num_inputs, const QuantizationConfig& config) {
  const StoredTensor& packed = *tensors.Find("weight_packed");
  std::vector<int> fitting, declared;
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    if (packed.shape.size() != 2 || packed.shape[1] != NumWords(num_inputs, bits)) continue;
    fitting.push_back(bits);
    if (std::ranges::find(config.bits, bits) != config.bits.end()) declared.push_back(bits);
  }
  if (fitting.size() == 1) return fitting[0];
  if (declared.size() == 1) return declared[0];
  if (!fitting.empty()) {
    return tensors.Error("weight_packed", "its shape fits ", absl::StrJoin(fitting, ", "),
                         " bits: num_bits has to declare one of them, got [", absl::StrJoin(config.bits, ", "), "]");
  }
  return tensors.Error("weight_packed", "expected ", num_inputs, " inputs of 1 to 8 bits in words of 32, got ",
                       Describe(packed));
}

}  // namespace

absl::StatusOr<FoundWeight> OpenPackQuantized(TensorSet tensors, const Shape& shape, const QuantizationConfig& config) {
  const int64_t num_outputs = shape[0], num_inputs = shape[1];
  FT_ASSIGN_OR_RETURN(const int bits, FindBits(tensors, num_inputs, config));
  PackQuantizedMatrix::Tensors stored;
  FT_ASSIGN_OR_RETURN(stored.packed, tensors.Take("weight_packed", {"I32"}, {num_outputs, NumWords(num_inputs, bits)}));
  const StoredTensor* scales = tensors.Find("weight_scale");
  const int64_t num_groups = scales != nullptr && scales->shape.size() == 2 ? scales->shape[1] : 1;
  FT_ASSIGN_OR_RETURN(stored.scales, tensors.Take("weight_scale", {"F32", "F16", "BF16"}, {num_outputs, num_groups}));
  FT_ASSIGN_OR_RETURN(InputGroups groups,
                      InputGroups::Make(tensors, "weight_g_idx", "weight_scale", {num_inputs, num_groups}, config));
  FT_ASSIGN_OR_RETURN(stored.zeros,
                      tensors.TakeIfThere("weight_zero_point", {"I32"}, {NumWords(num_outputs, bits), num_groups}));
  FT_ASSIGN_OR_RETURN(const StoredTensor* sizes, tensors.TakeIfThere("weight_shape", {"I64"}, {2}));
  if (sizes != nullptr) {
    const auto outputs = ElementAt<int64_t>(*sizes, 0), inputs = ElementAt<int64_t>(*sizes, 1);
    if (outputs != num_outputs || inputs != num_inputs) {
      return tensors.Error("weight_shape", "expected [", num_outputs, ", ", num_inputs, "], got [", outputs, ", ",
                           inputs, "]");
    }
  }
  IntegerLayout layout = {.bits = bits,
                          .groups = std::move(groups),
                          .has_zeros = stored.zeros != nullptr,
                          .scale_dtype = ScaleReader(*stored.scales).dtype()};
  std::string format = absl::StrCat("pack-quantized, ", bits, " bits, groups of ", layout.groups.group_size());
  auto matrix = std::make_unique<PackQuantizedMatrix>(shape, std::move(layout), stored);
  matrix->ForgetCentralZeros();
  return FoundWeight{.stored = std::move(matrix), .format = std::move(format), .tensors = tensors.taken()};
}

}  // namespace foretoken::quantization
