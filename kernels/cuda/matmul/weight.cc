// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/weight.h"

#include <algorithm>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/matmul/pack_weight.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int64_t kSlabElements = int64_t{4} << 20;  // elements of a part between two releases

// Some rows of a part, and the inputs of them that the weight takes.
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

// The slab as dense bf16: in place if it is that already, else in `dense`.
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

// Copies slabs to dense rows on the device, from which a kernel packs them.
struct SlabCopier {
  const WeightSource& source;
  const PackedWeight& weight;
  Device& device;
  Buffer staged;
  std::vector<uint16_t> dense;

  // `outputs` is the slab's place in the weight.
  void Copy(const Slab& slab, const IndexRange& outputs) {
    const int64_t row_bytes = slab.part.shape[1] * static_cast<int64_t>(SizeOf(slab.part.dtype));
    const std::byte* rows = slab.part.as<std::byte>() + slab.rows.begin * row_bytes;
    if (source.fetch) source.fetch(rows, slab.rows.size() * row_bytes);
    const uint16_t* from = AsDenseBf16(slab, dense);
    device.Copy(staged.get(), from, slab.num_elements() * sizeof(uint16_t), CopyKind::kToDevice);
    PackRows(static_cast<const uint16_t*>(staged.get()), outputs, weight, device.stream());
    device.Synchronize();  // the caller may now change or free the source
    if (source.release) source.release(rows, slab.rows.size() * row_bytes);
  }
};

}  // namespace

CudaWeight::CudaWeight(const PackedWeight& layout, Device& device)
    : CudaWeight(layout, NumericClassOf(layout.num_outputs, layout.num_inputs), device) {}

CudaWeight::CudaWeight(const PackedWeight& layout, const NumericClass& numeric_class, Device& device)
    : Weight(layout.num_outputs, layout.num_inputs, layout.num_bytes()),
      packed_(layout),
      numeric_class_(numeric_class),
      data_(device.Allocate(layout.num_bytes())),
      scales_(device.Allocate(layout.format == WeightFormat::kE4m3 ? layout.num_outputs * sizeof(float) : 0)),
      arrivals_(device.Allocate(kMaxArrivals * sizeof(uint32_t))) {
  packed_.data = static_cast<uint8_t*>(data_.get());
  packed_.scales = static_cast<float*>(scales_.get());
}

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
  const bool is_fp8 = source.quantization.weights == WeightQuantization::kFp8;
  auto weight = std::make_unique<CudaWeight>(PackedWeight{.format = is_fp8 ? WeightFormat::kE4m3 : WeightFormat::kBf16,
                                                          .num_outputs = out_features,
                                                          .num_inputs = inputs.size()},
                                             device);

  const int64_t slab_rows = std::clamp<int64_t>(kSlabElements / num_inputs, 1, out_features);
  SlabCopier copier{.source = source,
                    .weight = weight->packed(),
                    .device = device,
                    .staged = device.Allocate(slab_rows * inputs.size() * sizeof(uint16_t)),
                    .dense = {}};
  int64_t first_output = 0;  // within the part
  for (const ConstTensorView& part : source.parts) {
    for (int64_t begin = 0; begin < part.shape[0]; begin += slab_rows) {
      const IndexRange rows = {begin, std::min(begin + slab_rows, part.shape[0])};
      copier.Copy({.part = part, .rows = rows, .inputs = inputs}, {first_output + rows.begin, first_output + rows.end});
    }
    first_output += part.shape[0];
  }
  return weight;
}

}  // namespace foretoken::kernels::cuda
