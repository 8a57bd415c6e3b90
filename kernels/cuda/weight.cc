// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/weight.h"

#include <algorithm>
#include <vector>

#include "kernels/check.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int64_t kSlabElements = int64_t{4} << 20;  // of a part, between two releases

// Some rows of a part, of which the weight takes some inputs.
struct Slab {
  const ConstTensorView& part;
  IndexRange rows;
  IndexRange inputs;

  int64_t num_elements() const { return rows.size() * inputs.size(); }
  bool is_contiguous() const { return inputs.size() == part.shape[1]; }
};

uint16_t Bf16At(const ConstTensorView& part, int64_t element) {
  switch (part.dtype) {
    case DType::kF32:
      return Bf16FromFloat(part.as<float>()[element]);
    case DType::kF16:
      return Bf16FromFloat(FloatFromF16(part.as<uint16_t>()[element]));
    default:
      return part.as<uint16_t>()[element];
  }
}

// The slab as bf16, dense: in place where it is that already, else in `dense`.
const uint16_t* AsDenseBf16(const Slab& slab, std::vector<uint16_t>& dense) {
  const int64_t num_inputs = slab.part.shape[1];
  if (slab.part.dtype == DType::kBF16 && slab.is_contiguous()) {
    return slab.part.as<uint16_t>() + slab.rows.begin * num_inputs;
  }
  dense.resize(slab.num_elements());
  uint16_t* to = dense.data();
  for (int64_t row = slab.rows.begin; row < slab.rows.end; ++row) {
    for (int64_t i = slab.inputs.begin; i < slab.inputs.end; ++i) *to++ = Bf16At(slab.part, row * num_inputs + i);
  }
  return dense.data();
}

void CopyPart(const WeightSource& source, const ConstTensorView& part, const IndexRange& inputs, uint16_t* to,
              Device& device) {
  std::vector<uint16_t> dense;
  const int64_t num_rows = part.shape[0];
  const int64_t row_bytes = part.shape[1] * static_cast<int64_t>(SizeOf(part.dtype));
  const int64_t slab_rows = std::max<int64_t>(kSlabElements / part.shape[1], 1);
  for (int64_t begin = 0; begin < num_rows; begin += slab_rows) {
    const Slab slab{.part = part, .rows = {begin, std::min(begin + slab_rows, num_rows)}, .inputs = inputs};
    const uint16_t* from = AsDenseBf16(slab, dense);
    device.Copy(to, from, slab.num_elements() * sizeof(uint16_t), CopyKind::kToDevice);
    device.Synchronize();  // what was read is free to change or go
    to += slab.num_elements();
    if (source.release) source.release(part.as<std::byte>() + begin * row_bytes, slab.rows.size() * row_bytes);
  }
}

}  // namespace

std::unique_ptr<CudaWeight> PrepareWeight(const WeightSource& source, Device& device) {
  FT_CHECK(!source.parts.empty());
  const int64_t num_inputs = source.parts[0].shape[1];
  const IndexRange inputs = source.inputs.value_or(IndexRange{.begin = 0, .end = num_inputs});
  FT_CHECK(inputs.begin >= 0 && inputs.begin < inputs.end && inputs.end <= num_inputs);
  int64_t out_features = 0;
  for (const ConstTensorView& part : source.parts) {
    FT_CHECK(part.shape.rank == 2 && part.shape[1] == num_inputs && part.dtype != DType::kI32);
    out_features += part.shape[0];
  }
  FT_CHECK(out_features > 0);
  auto weight = std::make_unique<CudaWeight>(out_features, inputs.size(), device);
  uint16_t* to = weight->mutable_data();
  for (const ConstTensorView& part : source.parts) {
    CopyPart(source, part, inputs, to, device);
    to += part.shape[0] * inputs.size();
  }
  return weight;
}

}  // namespace foretoken::kernels::cuda
