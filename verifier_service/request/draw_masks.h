// SPDX-License-Identifier: Apache-2.0
// The tokens that one request may draw, in the form of kernels::TreeToAccept: at most two bit masks in the backend's
// memory. They are made when the first sample runs, and all samples share them. A request that may draw every drawable
// id has no mask of its own. If the vocabulary has holes, the one mask of DrawableIds serves all such requests.
//
// Before min_tokens no token that ends a sample is in the mask. Ids that are not drawable are never in a mask.
// Threads: the backend's caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "verifier_service/request/drawable_ids.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

// The masks in host memory. Both are empty if the request may draw every drawable id.
struct DrawMaskBits {
  int32_t min_tokens = 0;
  std::vector<uint32_t> early;  // [ceil(V / 32)] before min_tokens
  std::vector<uint32_t> late;   // [ceil(V / 32)] from min_tokens on
};
// The request's lists may hold drawable and unknown ids. Threads: any.
DrawMaskBits MakeDrawMaskBits(const GenerationRequest& request, std::span<const int32_t> ending_ids,
                              const DrawableIds& drawable);

class DrawMasks {
 public:
  DrawMasks() = default;
  // `drawable` outlives this.
  DrawMasks(const DrawMaskBits& bits, const DrawableIds& drawable, kernels::Backend& backend);

  // Returns the mask for a row that draws after `num_generated` generated tokens. Null allows all ids below V. If it is
  // null for some number, it is null for every larger number.
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
