// SPDX-License-Identifier: Apache-2.0
// Checkpoint directories of random weights, with heads that up to four tensor-parallel ranks can share: one for each
// architecture, and between them everything that is cut in a way of its own (biases, norms of heads, a tied head,
// windows). They are large enough for an order of sums that is not a row's own to show: rounding to bf16 hides most
// differences of single f32 bits, and thousands of roundings per row do not hide all.
//
//   const RandomCheckpoint checkpoint("qwen3");
//   LoadedModel model = LoadModel(checkpoint.directory(), {.num_ranks = 4});
#pragma once

#include <string>

#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

inline constexpr const char* kRandomCheckpoints[] = {"llama", "llama_tied", "mistral", "qwen2", "qwen3"};

class RandomCheckpoint {
 public:
  // One of kRandomCheckpoints. The vocabulary, 301, is no multiple of anything.
  explicit RandomCheckpoint(const std::string& name);

  const std::string& directory() const { return dir_.path(); }

 private:
  TempDir dir_;
};

}  // namespace foretoken::testing
