// SPDX-License-Identifier: Apache-2.0
// A matrix as the GPU's kernels read it: see weight_layout.h.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/base/device.h"
#include "kernels/cuda/matmul/numeric_class.h"
#include "kernels/cuda/matmul/weight_layout.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

class CudaWeight final : public Weight {
 public:
  // `layout` without its pointers. Its products' sums have the order of its shape, or that of a weight of which it is a
  // part.
  CudaWeight(const PackedWeight& layout, Device& device);
  CudaWeight(const PackedWeight& layout, const NumericClass& numeric_class, Device& device);

  const PackedWeight& packed() const { return packed_; }
  const NumericClass& numeric_class() const { return numeric_class_; }
  // A counter for each of the tiles of one product whose splits different blocks compute (matmul_skinny.h). They are
  // zero between products, of which a weight is in one at a time.
  uint32_t* arrivals() const { return static_cast<uint32_t*>(arrivals_.get()); }

 private:
  PackedWeight packed_;
  NumericClass numeric_class_;
  Buffer data_;
  Buffer scales_;
  Buffer arrivals_;
};

inline constexpr int kMaxArrivals = 256;

// Every Weight that this backend is given is one that it made.
inline const CudaWeight& AsCudaWeight(const Weight* weight) { return *static_cast<const CudaWeight*>(weight); }

// Copies the parts one after another, a few MiB at a time, and releases each of these before it fetches the next.
std::unique_ptr<CudaWeight> PrepareWeight(const WeightSource& source, Device& device);

}  // namespace foretoken::kernels::cuda
