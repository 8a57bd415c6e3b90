// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/weight.h"

#include <algorithm>
#include <vector>

#include "kernels/check.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int64_t kSlabElements = int64_t{4} << 20;  // between two releases

// Elements [begin, begin + count) of a part as bf16: in place where they are bf16, else in `rounded`.
const uint16_t* AsBf16(const ConstTensorView& part, int64_t begin, int64_t count, std::vector<uint16_t>& rounded) {
  if (part.dtype == DType::kBF16) return part.as<uint16_t>() + begin;
  rounded.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    rounded[i] = Bf16FromFloat(part.dtype == DType::kF32 ? part.as<float>()[begin + i]
                                                         : FloatFromF16(part.as<uint16_t>()[begin + i]));
  }
  return rounded.data();
}

void CopyPart(const WeightSource& source, const ConstTensorView& part, uint16_t* to, Device& device) {
  std::vector<uint16_t> rounded;
  const int64_t num_elements = part.shape.num_elements();
  for (int64_t begin = 0; begin < num_elements; begin += kSlabElements) {
    const int64_t count = std::min(kSlabElements, num_elements - begin);
    const uint16_t* from = AsBf16(part, begin, count, rounded);
    device.Copy(to + begin, from, count * sizeof(uint16_t), CopyKind::kToDevice);
    device.Synchronize();  // what was read is free to change or go
    if (!source.release) continue;
    source.release(part.as<std::byte>() + begin * SizeOf(part.dtype), count * SizeOf(part.dtype));
  }
}

}  // namespace

std::unique_ptr<CudaWeight> PrepareWeight(const WeightSource& source, Device& device) {
  FT_CHECK(!source.parts.empty());
  const int64_t in_features = source.parts[0].shape[1];
  int64_t out_features = 0;
  for (const ConstTensorView& part : source.parts) {
    FT_CHECK(part.shape.rank == 2 && part.shape[1] == in_features && part.dtype != DType::kI32);
    out_features += part.shape[0];
  }
  FT_CHECK(out_features > 0 && in_features > 0);
  auto weight = std::make_unique<CudaWeight>(out_features, in_features, device);
  uint16_t* to = weight->mutable_data();
  for (const ConstTensorView& part : source.parts) {
    CopyPart(source, part, to, device);
    to += part.shape.num_elements();
  }
  return weight;
}

}  // namespace foretoken::kernels::cuda
