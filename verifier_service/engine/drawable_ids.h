// SPDX-License-Identifier: Apache-2.0
// The ids that a sample may end up with: the tokenizer knows a token by the id, and the model has a row for it.
//
// A model's row may be wider than the vocabulary, because padding rows fill it up. A vocabulary may also have holes,
// and it may hold added tokens that a model without a row for them never learned. An id of these kinds can be neither
// drawn nor given, so that every output can be the next input.
// Threads: made by the backend's caller, then immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/tokenizer/vocabulary.h"
#include "kernels/backend.h"

namespace foretoken::verifier {

class DrawableIds {
 public:
  // `num_rows`: the width of the model's row.
  DrawableIds(const tokenizer::Vocabulary& vocabulary, int64_t num_rows, kernels::Backend& backend);

  // V of a draw: no id at or beyond it is drawable.
  int32_t num_tokens() const { return num_tokens_; }
  bool Contains(int32_t id) const;
  // [ceil(V / 32)] bit id % 32 of word id / 32: whether the id is drawable.
  std::span<const uint32_t> words() const { return words_; }
  // The same in the backend's memory. Null where every id below V is drawable, so that a usual vocabulary costs
  // nothing.
  const uint32_t* mask() const { return static_cast<const uint32_t*>(mask_.get()); }

 private:
  int32_t num_tokens_;
  std::vector<uint32_t> words_;
  kernels::Buffer mask_;
};

// A copy of the words in the backend's memory.
kernels::Buffer UploadMask(std::span<const uint32_t> words, kernels::Backend& backend);

}  // namespace foretoken::verifier
