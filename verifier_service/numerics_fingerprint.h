// SPDX-License-Identifier: Apache-2.0
// Names everything that decides the bits of logits and draws on a server: build, processor, tensor-parallel degree,
// dtypes, token ids and weights. Where two fingerprints are equal, equal token ids, parameters and seeds give equal
// tokens.
//
//   "foretoken-0.1.0 numerics-1 gnu-12.2.0-9f8e7d6c cpu/avx512_bf16 highway-1.0.3/AVX3 glibc-2.36+fma tp1 bf16
//    ids-32000/5f0c... weights-5f0c..."
//
// numerics-N counts the changes of our own code that moved bits. The toolchain is base::Toolchain: compiler and flags.
// The backend's words name the instruction set that was chosen and the vector library. The C library computes rotary
// tables and a few scalars of a draw, by what the processor has. A draw never takes ids beyond those that the tokenizer
// knows, and before a request's min_tokens none that ends an output: their number is shown, and a digest of those ids.
// Threads, batches and cache sizes are not in it, because they decide nothing.
//
// The weights' part is a digest over config.json and every tensor (WeightDigest), which loading has taken.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::verifier {

// Raised by every change after which some input gives other bits than before, in logits or in draws.
inline constexpr int kNumericsVersion = 1;

struct NumericsDescriptionArgs {
  std::string backend;                     // Backend::Describe
  int32_t tensor_parallel = 1;             // ranks that share the model
  int32_t num_tokens = 0;                  // ids that a draw may take are below it
  std::span<const int32_t> end_token_ids;  // in any order
};

// The fingerprint up to its weights: known before they are read.
std::string DescribeNumerics(const NumericsDescriptionArgs& args);

// The whole of it. `config_text` is config.json's.
std::string ComputeNumericsFingerprint(absl::string_view description, absl::string_view config_text,
                                       absl::string_view weight_digest);

}  // namespace foretoken::verifier
