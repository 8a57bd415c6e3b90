// SPDX-License-Identifier: Apache-2.0
// Names everything that decides the bits of logits and draws on a server: build, processor, tensor-parallel degree,
// dtypes and weights. Where two fingerprints are equal, equal token ids, parameters and seeds give equal tokens.
//
//   "foretoken-0.1.0 numerics-1 gnu-12.2.0-9f8e7d6c cpu/avx512_bf16 highway-1.0.3/AVX3 glibc-2.36+fma tp1 bf16
//    weights-5f0c..."
//
// numerics-N counts the changes of our own code that moved bits. The toolchain is base::Toolchain: compiler and flags.
// The backend's words name the instruction set that was chosen and the vector library. The C library computes rotary
// tables and a few scalars of a draw, by what the processor has. Threads, batches and cache sizes are not in it,
// because they decide nothing.
//
// The weights' part is a SHA-256 over config.json and every tensor (name, dtype, shape, bytes). Time: one reading of
// the checkpoint, at about the speed of SHA-256; its pages are given back as they are read.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/weights/checkpoint.h"

namespace foretoken::verifier {

// Raised by every change after which some input gives other bits than before, in logits or in draws.
inline constexpr int kNumericsVersion = 1;

struct NumericsFingerprintArgs {
  const model::ModelConfig& config;
  const weights::Checkpoint& checkpoint;
  std::string backend;          // Backend::Describe
  int32_t tensor_parallel = 1;  // ranks that share the model
};

// Errors: those of Checkpoint::Find.
absl::StatusOr<std::string> ComputeNumericsFingerprint(const NumericsFingerprintArgs& args);

}  // namespace foretoken::verifier
