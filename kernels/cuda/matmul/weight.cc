// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/weight.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/matmul/pack_weight.h"
#include "kernels/quantize.h"

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

GroupedRows RowsOf(int64_t num_rows, const PackedWeight& layout) {
  return {num_rows,
          layout.num_inputs,
          {.bits = layout.format == WeightFormat::kInt8 ? 8 : 4,
           .group_size = layout.group_size,
           .has_offsets = layout.has_offsets}};
}

// Rounds a row of bf16 to integers, as the CPU does. Zeros fill the last group.
void QuantizeRow(const uint16_t* bf16, int64_t row, GroupedRows& to) {
  std::vector<float> values(to.num_groups * to.group_size);
  std::vector<uint8_t> codes(values.size());
  for (int64_t i = 0; i < to.num_inputs; ++i) values[i] = FloatFromBf16(bf16[i]);
  for (int64_t group = 0; group < to.num_groups; ++group) {
    const int64_t begin = group * to.group_size;
    to.scales[row * to.num_groups + group] =
        QuantizeGroup(values.data() + begin, to.group_size, to.bits, codes.data() + begin);
  }
  std::copy_n(codes.begin(), to.num_inputs, to.codes.begin() + row * to.num_inputs);
}

// Copies the rows to the device and packs them as the weight's `outputs`.
void PackHostIntegers(const GroupedRows& rows, const IndexRange& outputs, const PackedWeight& weight, Device& device) {
  const auto upload = [&](const void* data, size_t num_bytes) {
    Buffer buffer = device.Allocate(num_bytes);
    if (num_bytes > 0) device.Copy(buffer.get(), data, num_bytes, CopyKind::kToDevice);
    return buffer;
  };
  const Buffer codes = upload(rows.codes.data(), rows.codes.size()),
               scales = upload(rows.scales.data(), rows.scales.size() * sizeof(float)),
               offsets = upload(rows.offsets.data(), rows.offsets.size() * sizeof(float));
  PackIntegers({.codes = static_cast<const uint8_t*>(codes.get()),
                .scales = static_cast<const float*>(scales.get()),
                .offsets = static_cast<const float*>(offsets.get())},
               outputs, weight, device.stream());
  device.Synchronize();  // the caller may now change or free the rows
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
    if (IsInteger(weight.format)) {
      GroupedRows integers = RowsOf(slab.rows.size(), weight);
      for (int64_t row = 0; row < slab.rows.size(); ++row) {
        QuantizeRow(from + row * slab.inputs.size(), row, integers);
      }
      PackHostIntegers(integers, outputs, weight, device);
    } else {
      device.Copy(staged.get(), from, slab.num_elements() * sizeof(uint16_t), CopyKind::kToDevice);
      PackRows(static_cast<const uint16_t*>(staged.get()), outputs, weight, device.stream());
      device.Synchronize();  // the caller may now change or free the source
    }
    if (source.release) source.release(rows, slab.rows.size() * row_bytes);
  }
};

void CopyParts(const WeightSource& source, const IndexRange& inputs, const PackedWeight& weight, Device& device) {
  const int64_t num_inputs = source.parts[0].shape[1];
  const int64_t slab_rows = std::clamp<int64_t>(kSlabElements / num_inputs, 1, weight.num_outputs);
  SlabCopier copier{.source = source,
                    .weight = weight,
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
}

void CopyStored(const WeightSource& source, const IndexRange& inputs, const PackedWeight& weight, Device& device) {
  const int64_t slab_rows = std::clamp<int64_t>(kSlabElements / weight.num_inputs, 1, weight.num_outputs);
  int64_t first_output = 0;  // within the part
  for (const StoredPart& part : source.stored) {
    for (int64_t begin = 0; begin < part.rows.size(); begin += slab_rows) {
      const int64_t end = std::min(begin + slab_rows, part.rows.size());
      GroupedRows rows = RowsOf(end - begin, weight);
      CopyIntegers(part, {begin, end}, inputs, 0, rows);
      PackHostIntegers(rows, {first_output + begin, first_output + end}, weight, device);
    }
    first_output += part.rows.size();
  }
}

// The largest group that the kernels take and that never spans two of the file's.
int64_t GroupSizeOf(const IntegerGroups& groups, int64_t first_input) {
  int64_t size = 128;
  while (groups.group_size % size != 0 || first_input % size != 0) size /= 2;
  return size;
}

WeightFormat FormatOf(WeightQuantization quantization) {
  switch (quantization) {
    case WeightQuantization::kNone:
      break;
    case WeightQuantization::kFp8:
      return WeightFormat::kE4m3;
    case WeightQuantization::kInt8:
      return WeightFormat::kInt8;
    case WeightQuantization::kInt4:
      return WeightFormat::kInt4;
  }
  return WeightFormat::kBf16;
}

// `kept` are the groups that KeptGroups returned.
PackedWeight LayoutOf(const Shape& shape, const Quantization& quantization, const std::optional<IntegerGroups>& kept) {
  PackedWeight layout = {.format = FormatOf(quantization.weights),
                         .num_outputs = shape[0],
                         .num_inputs = shape[1],
                         .group_size = quantization.group_size};
  if (!kept) return layout;
  layout.format = kept->bits == 8 ? WeightFormat::kInt8 : WeightFormat::kInt4;
  layout.group_size = kept->group_size;
  layout.has_offsets = kept->has_offsets;
  return layout;
}

PackedWeight LayoutOf(const WeightSource& source, int64_t num_outputs, const IndexRange& inputs) {
  std::optional<IntegerGroups> kept;
  if (!source.stored.empty()) {
    const std::optional<IntegerGroups> common = CommonGroups(source.stored);
    if (common) kept = KeptGroups(*common, inputs.begin);
    FT_CHECK(kept.has_value());
  }
  return LayoutOf(Shape(num_outputs, inputs.size()), source.quantization, kept);
}

// Of the scales, and of the offsets, too.
size_t IntegerScaleBytes(const PackedWeight& layout) {
  if (!IsInteger(layout.format)) return 0;
  return layout.num_groups() * layout.padded_outputs() * sizeof(float) * (layout.has_offsets ? 2 : 1);
}

size_t ScaleBytes(const PackedWeight& layout) {
  return layout.format == WeightFormat::kE4m3 ? layout.num_outputs * sizeof(float) : IntegerScaleBytes(layout);
}

}  // namespace

std::optional<IntegerGroups> KeptGroups(const IntegerGroups& groups, int64_t first_input) {
  IntegerGroups kept = {.bits = groups.bits == 4 ? 4 : 8,
                        .group_size = GroupSizeOf(groups, first_input),
                        .has_offsets = groups.has_offsets};
  const bool has_bits = groups.bits == 4 || groups.bits == 6 || groups.bits == 8;
  if (!has_bits || groups.is_reordered || kept.group_size < kLeastGroupSize) return std::nullopt;
  return kept;
}

size_t MatrixBytes(const Shape& shape, const Quantization& quantization, const std::optional<IntegerGroups>& kept) {
  const PackedWeight layout = LayoutOf(shape, quantization, kept);
  return layout.num_bytes() + ScaleBytes(layout) + kMaxArrivals * sizeof(uint32_t);
}

CudaWeight::CudaWeight(const PackedWeight& layout, Device& device)
    : CudaWeight(layout, NumericClassOf(layout.num_outputs, layout.num_inputs), device) {}

CudaWeight::CudaWeight(const PackedWeight& layout, const NumericClass& numeric_class, Device& device)
    : Weight(layout.num_outputs, layout.num_inputs, layout.num_bytes() + IntegerScaleBytes(layout)),
      packed_(layout),
      numeric_class_(numeric_class),
      matrix_unit_(device.facts().has_group_mma ? MatrixUnit::kGroups : MatrixUnit::kWarps),
      data_(device.Allocate(layout.num_bytes())),
      scales_(device.Allocate(ScaleBytes(layout))),
      arrivals_(device.Allocate(kMaxArrivals * sizeof(uint32_t))) {
  packed_.data = static_cast<uint8_t*>(data_.get());
  packed_.scales = static_cast<float*>(scales_.get());
  if (layout.has_offsets) packed_.offsets = packed_.scales + layout.num_groups() * layout.padded_outputs();
}

std::unique_ptr<CudaWeight> PrepareWeight(const WeightSource& source, Device& device) {
  FT_CHECK(source.parts.empty() != source.stored.empty());
  const int64_t num_inputs = source.parts.empty() ? source.stored[0].matrix->shape()[1] : source.parts[0].shape[1];
  const IndexRange inputs = source.inputs.value_or(IndexRange{.begin = 0, .end = num_inputs});
  FT_CHECK(inputs.begin >= 0 && inputs.begin < inputs.end && inputs.end <= num_inputs);
  int64_t out_features = 0;
  for (const ConstTensorView& part : source.parts) {
    FT_CHECK(part.shape.rank == 2 && part.shape[1] == num_inputs && part.dtype != DType::kI32);
    out_features += part.shape[0];
  }
  for (const StoredPart& part : source.stored) {
    FT_CHECK(part.matrix->shape()[1] == num_inputs);
    out_features += part.rows.size();
  }
  FT_CHECK(out_features > 0);
  auto weight = std::make_unique<CudaWeight>(LayoutOf(source, out_features, inputs), device);
  if (source.stored.empty()) {
    CopyParts(source, inputs, weight->packed(), device);
  } else {
    CopyStored(source, inputs, weight->packed(), device);
  }
  return weight;
}

}  // namespace foretoken::kernels::cuda
