// SPDX-License-Identifier: Apache-2.0
// Names everything that decides bits on a server: build, backend, tensor-parallel degree, dtypes and weights. Where two
// fingerprints are equal, equal requests give equal tokens.
//
//   "foretoken-0.1.0 cpu/avx512_bf16 tp1 bf16 weights-5f0c..."
//
// The weights' part is a SHA-256 over config.json and every tensor (name, dtype, shape, bytes). Time: one reading of
// the checkpoint, at about the speed of SHA-256; its pages are given back as they are read.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/weights/checkpoint.h"

namespace foretoken::verifier {

struct NumericsFingerprintArgs {
  const model::ModelConfig& config;
  const weights::Checkpoint& checkpoint;
  std::string backend;  // Backend::Describe
};

// Errors: those of Checkpoint::Find.
absl::StatusOr<std::string> ComputeNumericsFingerprint(const NumericsFingerprintArgs& args);

}  // namespace foretoken::verifier
