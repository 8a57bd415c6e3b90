// SPDX-License-Identifier: Apache-2.0
// Which tokens one request may draw, as kernels::TreeToAccept takes it: at most two bit masks in the backend's memory,
// made when the first sample runs and shared by all. A request that may draw every drawable id has none of its own:
// where the vocabulary has holes, the one mask of DrawableIds serves all such requests.
//
// Before min_tokens nothing that ends a sample may be drawn; ids that are not drawable are left out.
// Threads: the backend's caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "verifier_service/engine/drawable_ids.h"
#include "verifier_service/engine/request.h"

namespace foretoken::verifier {

// The masks in host memory; neither where every drawable id may be drawn.
struct DrawMaskBits {
  int32_t min_tokens = 0;
  std::vector<uint32_t> early;  // [ceil(V / 32)]: before min_tokens
  std::vector<uint32_t> late;   // likewise: from then on
};
// The request's ids are drawable or unknown. Threads: any.
DrawMaskBits MakeDrawMaskBits(const GenerationRequest& request, std::span<const int32_t> ending_ids,
                              const DrawableIds& drawable);

class DrawMasks {
 public:
  DrawMasks() = default;
  // `drawable` outlives this.
  DrawMasks(const DrawMaskBits& bits, const DrawableIds& drawable, kernels::Backend& backend);

  // For a row below which a sample has so many generated tokens; null: all. Where it is null for some number, it is so
  // for every larger one.
  const uint32_t* At(int32_t num_generated) const {
    const kernels::Buffer& mask = num_generated < min_tokens_ ? early_ : late_;
    return mask == nullptr ? drawable_ : static_cast<const uint32_t*>(mask.get());
  }

 private:
  const uint32_t* drawable_ = nullptr;
  int32_t min_tokens_ = 0;
  kernels::Buffer early_;
  kernels::Buffer late_;
};

}  // namespace foretoken::verifier
