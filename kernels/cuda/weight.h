// SPDX-License-Identifier: Apache-2.0
// A matrix as the GPU's kernels read it: bf16, row-major, [N, K], as a checkpoint's files have it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

class CudaWeight final : public Weight {
 public:
  CudaWeight(int64_t out_features, int64_t in_features, Device& device)
      : Weight(out_features, in_features, sizeof(uint16_t) * out_features * in_features),
        data_(device.Allocate(num_bytes())) {}

  const uint16_t* data() const { return static_cast<const uint16_t*>(data_.get()); }
  uint16_t* mutable_data() { return static_cast<uint16_t*>(data_.get()); }

 private:
  Buffer data_;
};

// Every Weight that this backend is given is one that it made.
inline const CudaWeight& AsCudaWeight(const Weight* weight) { return *static_cast<const CudaWeight*>(weight); }

// Copies the parts one after another, a few MiB at a time, and releases each of these before it reads the next.
std::unique_ptr<CudaWeight> PrepareWeight(const WeightSource& source, Device& device);

}  // namespace foretoken::kernels::cuda
