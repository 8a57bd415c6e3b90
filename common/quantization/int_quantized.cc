// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/int_quantized.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/quantization/integer_matrix.h"
#include "common/quantization/scales.h"

namespace foretoken::quantization {
namespace {

using kernels::Shape;
using weights::StoredTensor;

constexpr int kInt8Bits = 8;
constexpr int kCenter = 128;  // a code is the signed value and this

class IntQuantizedMatrix : public IntegerMatrix {
 public:
  struct Tensors {
    const StoredTensor* values = nullptr;
    const StoredTensor* scales = nullptr;
    const StoredTensor* zeros = nullptr;  // null: none
    bool is_per_tensor = false;           // one scale for the whole matrix
  };
  IntQuantizedMatrix(const Shape& shape, IntegerLayout layout, const Tensors& tensors)
      : IntegerMatrix(shape, std::move(layout)), tensors_(tensors) {}

 private:
  void ReadCodes(const Rows& rows, uint8_t* codes) const override {
    const int64_t num_inputs = shape()[1];
    const auto* from = reinterpret_cast<const uint8_t*>(tensors_.values->bytes.data()) + rows.first * num_inputs;
    for (int64_t i = 0; i < rows.count * num_inputs; ++i) codes[i] = from[i] ^ kCenter;
  }

  void ReadScales(const Rows& rows, float* scales) const override {
    const ScaleReader reader(*tensors_.scales);
    const int64_t num_groups = layout().groups.num_groups();
    for (int64_t i = 0; i < rows.count * num_groups; ++i) scales[i] = reader[PlaceOf(rows, i)];
  }

  void ReadZeros(const Rows& rows, int32_t* zeros) const override {
    const int64_t num_groups = layout().groups.num_groups();
    for (int64_t i = 0; i < rows.count * num_groups; ++i) {
      zeros[i] = kCenter + ElementAt<int8_t>(*tensors_.zeros, PlaceOf(rows, i));
    }
  }

  int64_t PlaceOf(const Rows& rows, int64_t i) const {
    return tensors_.is_per_tensor ? 0 : rows.first * layout().groups.num_groups() + i;
  }

  Tensors tensors_;
};

}  // namespace

absl::StatusOr<FoundWeight> OpenIntQuantized(TensorSet tensors, const Shape& shape, const QuantizationConfig& config) {
  const int64_t num_outputs = shape[0], num_inputs = shape[1];
  IntQuantizedMatrix::Tensors stored;
  FT_ASSIGN_OR_RETURN(stored.values, tensors.Take("weight", {"I8"}, {num_outputs, num_inputs}));
  const StoredTensor* scales = tensors.Find("weight_scale");
  std::vector<int64_t> scale_shape = {num_outputs, 1};
  int64_t num_groups = 1;
  if (scales != nullptr) {
    using Dims = std::vector<int64_t>;
    stored.is_per_tensor = scales->shape.empty() || scales->shape == Dims{1} || scales->shape == Dims{1, 1};
    if (stored.is_per_tensor || scales->shape == Dims{num_outputs}) {
      scale_shape = scales->shape;
    } else if (scales->shape.size() == 2) {
      scale_shape[1] = num_groups = scales->shape[1];
    }
  }
  FT_ASSIGN_OR_RETURN(stored.scales, tensors.Take("weight_scale", {"F32", "F16", "BF16"}, scale_shape));
  FT_ASSIGN_OR_RETURN(stored.zeros, tensors.TakeIfThere("weight_zero_point", {"I8"}, scale_shape));
  FT_ASSIGN_OR_RETURN(InputGroups groups,
                      InputGroups::Make(tensors, "weight_g_idx", "weight_scale", {num_inputs, num_groups}, config));
  IntegerLayout layout = {.bits = kInt8Bits,
                          .groups = std::move(groups),
                          .has_zeros = stored.zeros != nullptr,
                          .scale_dtype = ScaleReader(*stored.scales).dtype()};
  std::string format = absl::StrCat("int-quantized, groups of ", layout.groups.group_size());
  auto matrix = std::make_unique<IntQuantizedMatrix>(shape, std::move(layout), stored);
  matrix->ForgetCentralZeros();
  return FoundWeight{.stored = std::move(matrix), .format = std::move(format), .tensors = tensors.taken()};
}

}  // namespace foretoken::quantization
