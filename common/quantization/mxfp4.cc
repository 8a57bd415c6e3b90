// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/mxfp4.h"

#include <array>
#include <optional>

#include "common/base/status_macros.h"
#include "common/quantization/scales.h"

namespace foretoken::quantization {
namespace {

using kernels::Shape;
using weights::StoredTensor;

constexpr int64_t kGroup = 32;
constexpr std::array<float, 16> kValues = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                           -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

class Mxfp4Matrix : public kernels::StoredMatrix {
 public:
  Mxfp4Matrix(const Shape& shape, const StoredTensor& packed, const StoredTensor& scales)
      : StoredMatrix(shape), packed_(packed), scales_(scales) {}

  void ReadValues(int64_t first_row, int64_t num_rows, float* values) const override {
    ForEachGroup(first_row, num_rows, [&](float scale, const uint8_t* bytes) {
      for (int64_t i = 0; i < kGroup / 2; ++i) {
        *values++ = kValues[bytes[i] & 0xf] * scale;
        *values++ = kValues[bytes[i] >> 4] * scale;
      }
    });
  }

  // Twice a value is an integer. A bf16 holds every scale, also half of the smallest.
  std::optional<kernels::IntegerGroups> groups() const override {
    return kernels::IntegerGroups{
        .bits = 6, .group_size = kGroup, .scale_dtype = kernels::DType::kBF16, .is_e2m1 = true};
  }
  void ReadGroups(int64_t first_row, int64_t num_rows, uint8_t* codes, float* scales, float*) const override {
    const auto code = [](int nibble) { return static_cast<uint8_t>(32 + static_cast<int>(2 * kValues[nibble])); };
    ForEachGroup(first_row, num_rows, [&](float scale, const uint8_t* bytes) {
      *scales++ = scale / 2;
      for (int64_t i = 0; i < kGroup / 2; ++i) {
        *codes++ = code(bytes[i] & 0xf);
        *codes++ = code(bytes[i] >> 4);
      }
    });
  }

 private:
  // Visits each group's scale and bytes, in order.
  template <typename Visitor>
  void ForEachGroup(int64_t first_row, int64_t num_rows, const Visitor& visit) const {
    const int64_t num_groups = shape()[1] / kGroup;
    const auto* bytes = reinterpret_cast<const uint8_t*>(packed_.bytes.data());
    for (int64_t group = first_row * num_groups; group < (first_row + num_rows) * num_groups; ++group) {
      visit(FloatFromE8m0(ElementAt<uint8_t>(scales_, group)), bytes + group * kGroup / 2);
    }
  }

  const StoredTensor& packed_;
  const StoredTensor& scales_;
};

}  // namespace

absl::StatusOr<FoundWeight> OpenMxfp4(TensorSet tensors, const Shape& shape) {
  const int64_t num_outputs = shape[0], num_inputs = shape[1];
  const StoredTensor* given = tensors.Find("weight_scale");
  if (given != nullptr && given->dtype == "F8_E4M3") {
    return tensors.Error("weight_scale", "F8_E4M3 means NVFP4, which is not read: the model is needed in MXFP4 (U8 [",
                         num_outputs, ", ", num_inputs / kGroup, "]) or in another format");
  }
  if (num_inputs % kGroup != 0) {
    return tensors.Error("weight_packed", "MXFP4 expects a multiple of ", kGroup, " inputs, got ", num_inputs);
  }
  FT_ASSIGN_OR_RETURN(const StoredTensor* packed, tensors.Take("weight_packed", {"U8"}, {num_outputs, num_inputs / 2}));
  FT_ASSIGN_OR_RETURN(const StoredTensor* scales,
                      tensors.Take("weight_scale", {"U8", "F8_E8M0"}, {num_outputs, num_inputs / kGroup}));
  return FoundWeight{
      .stored = std::make_unique<Mxfp4Matrix>(shape, *packed, *scales), .format = "mxfp4", .tensors = tensors.taken()};
}

}  // namespace foretoken::quantization
