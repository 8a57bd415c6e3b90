// SPDX-License-Identifier: Apache-2.0
// Checkpoint directories of random weights, one for each architecture. Up to four tensor-parallel ranks can share their
// heads. Together they have everything that ranks cut in a special way: biases, norms of heads and of whole
// projections, a tied head, windows. Rounding to bf16 hides most differences of single f32 bits. But the models have
// thousands of roundings per row, so an order of sums that depends on other rows shows.
//
//   const RandomCheckpoint checkpoint("qwen3");
//   LoadedModel model = LoadModel(checkpoint.directory(), {.num_ranks = 4});
#pragma once

#include <string>

#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

inline constexpr const char* kRandomCheckpoints[] = {"llama", "llama_tied", "mistral", "qwen2", "qwen3", "olmo2"};

class RandomCheckpoint {
 public:
  // `name` is one of kRandomCheckpoints, or qwen3_moe, whose 24 experts have 4.5 MiB. The vocabulary size, 301, is a
  // multiple of no tile or rank count; qwen3_moe has that of the demo's tokenizer.
  explicit RandomCheckpoint(const std::string& name);

  const std::string& directory() const { return dir_.path(); }

 private:
  TempDir dir_;
};

}  // namespace foretoken::testing
