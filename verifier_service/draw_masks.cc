// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/draw_masks.h"

#include <vector>

namespace foretoken::verifier {
namespace {

constexpr int32_t kWordBits = 32;

class MaskWords {
 public:
  MaskWords(int32_t num_tokens, bool is_allowed)
      : num_tokens_(num_tokens), words_((num_tokens + kWordBits - 1) / kWordBits, is_allowed ? ~uint32_t{0} : 0) {}

  void Allow(std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      if (id < num_tokens_) words_[id / kWordBits] |= uint32_t{1} << id % kWordBits;
    }
  }
  void Ban(std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      if (id < num_tokens_) words_[id / kWordBits] &= ~(uint32_t{1} << id % kWordBits);
    }
  }
  kernels::Buffer Upload(kernels::Backend& backend) const {
    const size_t num_bytes = words_.size() * sizeof(uint32_t);
    kernels::Buffer buffer = backend.Allocate(num_bytes);
    backend.Copy(buffer.get(), words_.data(), num_bytes, kernels::CopyKind::kToDevice);
    return buffer;
  }

 private:
  int32_t num_tokens_;
  std::vector<uint32_t> words_;
};

}  // namespace

DrawMasks::DrawMasks(const GenerationRequest& request, std::span<const int32_t> ending_ids, int32_t num_tokens,
                     kernels::Backend& backend) {
  const bool has_lists = !request.allowed_token_ids.empty() || !request.banned_token_ids.empty();
  const bool has_early = request.stop.min_tokens > 0 && !ending_ids.empty();
  if (!has_lists && !has_early) return;
  MaskWords words(num_tokens, /*is_allowed=*/request.allowed_token_ids.empty());
  words.Allow(request.allowed_token_ids);
  words.Ban(request.banned_token_ids);
  if (has_lists) late_ = words.Upload(backend);
  if (!has_early) return;
  words.Ban(ending_ids);
  early_ = words.Upload(backend);
  min_tokens_ = request.stop.min_tokens;
}

}  // namespace foretoken::verifier
