// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/drawable_ids.h"

#include <algorithm>

namespace foretoken::verifier {

DrawableIds::DrawableIds(const tokenizer::Vocabulary& vocabulary, int64_t num_rows, kernels::Backend& backend)
    : num_tokens_(static_cast<int32_t>(std::min<int64_t>(static_cast<int64_t>(vocabulary.num_ids()), num_rows))),
      words_((num_tokens_ + kWordBits - 1) / kWordBits) {
  bool has_holes = false;
  for (int32_t id = 0; id < num_tokens_; ++id) {
    if (vocabulary.Find(id) == nullptr) {
      has_holes = true;
    } else {
      words_[id / kWordBits] |= uint32_t{1} << id % kWordBits;
    }
  }
  if (has_holes) mask_ = UploadMask(words_, backend);
}

bool DrawableIds::Contains(int32_t id) const {
  return id >= 0 && id < num_tokens_ && (words_[id / kWordBits] >> id % kWordBits & 1) != 0;
}

kernels::Buffer UploadMask(std::span<const uint32_t> words, kernels::Backend& backend) {
  kernels::Buffer buffer = backend.Allocate(words.size_bytes());
  backend.Copy(buffer.get(), words.data(), words.size_bytes(), kernels::CopyKind::kToDevice);
  return buffer;
}

}  // namespace foretoken::verifier
