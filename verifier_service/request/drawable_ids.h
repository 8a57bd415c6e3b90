// SPDX-License-Identifier: Apache-2.0
// The ids that a sample may draw: the tokenizer has a token for the id, and the model has a row for it.
//
// A model may have more rows than the vocabulary has ids, because of padding. A vocabulary may have holes, and it may
// hold added tokens for which the model has no row. Requests can neither draw nor send such ids, so every output can be
// the next input.
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
  // `num_rows`: the number of logits of the model.
  DrawableIds(const tokenizer::Vocabulary& vocabulary, int64_t num_rows, kernels::Backend& backend);

  // The V of a draw. Every drawable id is below it.
  int32_t num_tokens() const { return num_tokens_; }
  bool Contains(int32_t id) const;
  // [ceil(V / 32)] bit id % 32 of word id / 32 is set if the id is drawable.
  std::span<const uint32_t> words() const { return words_; }
  // The same words in the backend's memory. Null if every id below V is drawable, so a usual vocabulary needs no mask.
  const uint32_t* mask() const { return static_cast<const uint32_t*>(mask_.get()); }

 private:
  int32_t num_tokens_;
  std::vector<uint32_t> words_;
  kernels::Buffer mask_;
};

inline constexpr int32_t kWordBits = 32;  // the ids of one word of a mask

// Copies the words to the backend's memory.
kernels::Buffer UploadMask(std::span<const uint32_t> words, kernels::Backend& backend);

}  // namespace foretoken::verifier
