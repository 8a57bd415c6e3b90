// SPDX-License-Identifier: Apache-2.0
// The fingerprint of everything that decides the bits of logits and draws on a server: build, processor,
// tensor-parallel degree, dtypes, token ids and weights. If two fingerprints are equal, equal token ids, parameters and
// seeds give equal tokens.
//
//   "foretoken-0.1.0 numerics-3 gnu-12.2.0-9f8e7d6c cpu/avx512_bf16 highway-1.0.3/AVX3 glibc-2.36+fma tp1 bf16
//    ids-32000/5f0c... weights-5f0c..."
//
// numerics-N counts the changes of our own code that moved bits. The toolchain is base::Toolchain: compiler and flags.
// The backend's part names the chosen instruction set and the vector library. The C library computes rotary tables and
// a few scalars of a draw, and its results depend on the processor. rope-long stands for LongRoPE's divisors for long
// contexts. The ids part has the number of ids that a draw may take, and a digest of the vocabulary and of the ids that
// end an output. A draw takes no id without a token, stop strings and forms read the bytes of tokens, and a draw
// excludes the ids that end an output before min_tokens. Threads, batches and cache sizes are not part of the
// fingerprint, because they decide no bit.
//
// The weights part is a digest over config.json and every tensor (WeightDigest), computed while the weights load.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::verifier {

// Raised by every change that moves a bit of logits or draws for some input.
inline constexpr int kNumericsVersion = 3;

struct NumericsDescriptionArgs {
  std::string backend;                     // Backend::Describe
  int32_t tensor_parallel = 1;             // ranks that share the model
  bool takes_long_divisors = false;        // model::TakesLongDivisors, which depends on the longest context
  int32_t num_tokens = 0;                  // every id that a draw may take is below it
  absl::string_view vocabulary;            // tokenizer::VocabularyFingerprint
  std::span<const int32_t> end_token_ids;  // in any order
};

// Returns the fingerprint without the weights part. It is known before the weights are read.
std::string DescribeNumerics(const NumericsDescriptionArgs& args);

// Returns the whole fingerprint. `config_text` is the text of config.json.
std::string ComputeNumericsFingerprint(absl::string_view description, absl::string_view config_text,
                                       absl::string_view weight_digest);

}  // namespace foretoken::verifier
