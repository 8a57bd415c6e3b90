// SPDX-License-Identifier: Apache-2.0
// Which tokens one request may draw, as kernels::TreeToAccept takes it: at most two bit masks in the backend's memory,
// made once and shared by the request's samples. A request that may draw everything has none.
//
// Before min_tokens nothing that ends a sample may be drawn; ids that the vocabulary does not have are left out.
// Threads: the backend's caller.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "verifier_service/request.h"

namespace foretoken::verifier {

class DrawMasks {
 public:
  DrawMasks() = default;
  // `num_tokens`: V of the rows.
  DrawMasks(const GenerationRequest& request, std::span<const int32_t> ending_ids, int32_t num_tokens,
            kernels::Backend& backend);

  // For a row below which a sample has so many generated tokens; null: all. Where it is null for some number, it is so
  // for every larger one.
  const uint32_t* At(int32_t num_generated) const {
    const kernels::Buffer& mask = num_generated < min_tokens_ ? early_ : late_;
    return static_cast<const uint32_t*>(mask.get());
  }

 private:
  int32_t min_tokens_ = 0;
  kernels::Buffer early_;  // [ceil(V / 32)]
  kernels::Buffer late_;
};

}  // namespace foretoken::verifier
