// SPDX-License-Identifier: Apache-2.0
// A matrix in the layout of the GPU's kernels: see weight_layout.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/backend.h"
#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/matrix_unit.h"
#include "kernels/cuda/matmul/numeric_class.h"
#include "kernels/cuda/matmul/weight_layout.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

class CudaWeight final : public Weight {
 public:
  // `layout` comes without its pointers. The sums of its products have the order of its own shape, or of the larger
  // weight that it is a part of.
  CudaWeight(const PackedWeight& layout, Device& device);
  CudaWeight(const PackedWeight& layout, const NumericClass& numeric_class, Device& device);

  const PackedWeight& packed() const { return packed_; }
  const NumericClass& numeric_class() const { return numeric_class_; }
  MatrixUnit matrix_unit() const { return matrix_unit_; }  // the best of its device
  // Counters for the tiles of one product whose splits different blocks compute (matmul_skinny.h). They are zero
  // between products. A weight is in one product at a time.
  uint32_t* arrivals() const { return static_cast<uint32_t*>(arrivals_.get()); }

 private:
  PackedWeight packed_;
  NumericClass numeric_class_;
  MatrixUnit matrix_unit_;
  Buffer data_;
  Buffer scales_;  // and offsets
  Buffer arrivals_;
};

inline constexpr int kMaxArrivals = 256;

// Every Weight that this backend gets is a CudaWeight.
inline const CudaWeight& AsCudaWeight(const Weight* weight) { return *static_cast<const CudaWeight*>(weight); }

// Returns the groups in which a weight keeps a file's integers, from the input `first_input` on. Codes of 6 bits become
// codes of 8, and scales become f32. Unset: the weight keeps the integers' values as bf16.
std::optional<IntegerGroups> KeptGroups(const IntegerGroups& groups, int64_t first_input);

// As Backend::MatrixBytes, with the layout's padding and the counters.
size_t MatrixBytes(const Shape& shape, const Quantization& quantization, const std::optional<IntegerGroups>& kept);

// Copies the parts one after another, a few MiB at a time, and releases each piece before it fetches the next.
std::unique_ptr<CudaWeight> PrepareWeight(const WeightSource& source, Device& device);

}  // namespace foretoken::kernels::cuda
