// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/draw_masks.h"

#include <utility>

namespace foretoken::verifier {
namespace {

void Allow(std::span<const int32_t> ids, int32_t num_tokens, std::vector<uint32_t>& mask) {
  for (const int32_t id : ids) {
    if (id < num_tokens) mask[id / kWordBits] |= uint32_t{1} << id % kWordBits;
  }
}

void Ban(std::span<const int32_t> ids, int32_t num_tokens, std::vector<uint32_t>& mask) {
  for (const int32_t id : ids) {
    if (id < num_tokens) mask[id / kWordBits] &= ~(uint32_t{1} << id % kWordBits);
  }
}

// Returns the mask of the allowed ids, or of every drawable id if the list is empty.
std::vector<uint32_t> AllowedMask(std::span<const int32_t> allowed_ids, const DrawableIds& drawable) {
  const std::span<const uint32_t> all = drawable.words();
  if (allowed_ids.empty()) return {all.begin(), all.end()};
  std::vector<uint32_t> mask(all.size());
  Allow(allowed_ids, drawable.num_tokens(), mask);
  return mask;
}

kernels::Buffer Upload(const std::vector<uint32_t>& mask, kernels::Backend& backend) {
  return mask.empty() ? kernels::Buffer() : UploadMask(mask, backend);
}

}  // namespace

DrawMaskBits MakeDrawMaskBits(const GenerationRequest& request, std::span<const int32_t> ending_ids,
                              const DrawableIds& drawable) {
  const bool has_lists = !request.allowed_token_ids.empty() || !request.banned_token_ids.empty();
  const bool has_early = request.stop.min_tokens > 0 && !ending_ids.empty();
  DrawMaskBits bits;
  if (!has_lists && !has_early) return bits;
  std::vector<uint32_t> mask = AllowedMask(request.allowed_token_ids, drawable);
  Ban(request.banned_token_ids, drawable.num_tokens(), mask);
  if (has_lists) bits.late = mask;
  if (!has_early) return bits;
  Ban(ending_ids, drawable.num_tokens(), mask);
  bits.early = std::move(mask);
  bits.min_tokens = request.stop.min_tokens;
  return bits;
}

DrawMasks::DrawMasks(const DrawMaskBits& bits, const DrawableIds& drawable, kernels::Backend& backend)
    : drawable_(drawable.mask()),
      min_tokens_(bits.min_tokens),
      early_(Upload(bits.early, backend)),
      late_(Upload(bits.late, backend)) {}

}  // namespace foretoken::verifier
