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

// Models with parts that four ranks divide and no model above has: experts, a shared expert, sinks and fused matrices.
// A rank's part of gpt_oss's MXFP4 matrices is no whole number of groups.
inline constexpr const char* kRandomFamilies[] = {"qwen3_moe", "glm4_moe", "gpt_oss", "phi3_longrope", "gemma2"};

class RandomCheckpoint {
 public:
  // `name` is one of the lists above. The 24 experts of qwen3_moe have 4.5 MiB. The contexts of phi3_longrope are long
  // from 4,097 tokens on. The vocabulary size, 301, is a multiple of no tile or rank count; these two have that of the
  // demo's tokenizer.
  explicit RandomCheckpoint(const std::string& name);

  const std::string& directory() const { return dir_.path(); }

 private:
  TempDir dir_;
};

}  // namespace foretoken::testing
