// SPDX-License-Identifier: Apache-2.0
// Numbers in a tensor of a file. The bytes of a file may lie at any address, so they are read by copies.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/weights/safetensors.h"
#include "kernels/dtype.h"

namespace foretoken::quantization {

template <typename T>
T ElementAt(const weights::StoredTensor& tensor, int64_t i) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

// E8M0 is an exponent: 2^(code - 127). The last code is a NaN.
inline float FloatFromE8m0(uint8_t code) {
  if (code == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return code == 0 ? 0x1p-127f : std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

// Reads the scales of a tensor whose dtype is F32, F16, BF16, or E8M0 as F8_E8M0 or plain U8.
class ScaleReader {
 public:
  explicit ScaleReader(const weights::StoredTensor& tensor)
      : tensor_(&tensor),
        kind_(tensor.dtype == "F32"    ? Kind::kF32
              : tensor.dtype == "F16"  ? Kind::kF16
              : tensor.dtype == "BF16" ? Kind::kBF16
                                       : Kind::kE8M0) {}

  float operator[](int64_t i) const {
    switch (kind_) {
      case Kind::kF32:
        return ElementAt<float>(*tensor_, i);
      case Kind::kF16:
        return kernels::FloatFromF16(ElementAt<uint16_t>(*tensor_, i));
      case Kind::kBF16:
        return kernels::FloatFromBf16(ElementAt<uint16_t>(*tensor_, i));
      case Kind::kE8M0:
        break;
    }
    return FloatFromE8m0(ElementAt<uint8_t>(*tensor_, i));
  }

  // The dtype that holds every scale exactly.
  kernels::DType dtype() const {
    return kind_ == Kind::kF16   ? kernels::DType::kF16
           : kind_ == Kind::kF32 ? kernels::DType::kF32
                                 : kernels::DType::kBF16;
  }

 private:
  enum class Kind : uint8_t { kF32, kF16, kBF16, kE8M0 };
  const weights::StoredTensor* tensor_;
  Kind kind_;
};

}  // namespace foretoken::quantization
