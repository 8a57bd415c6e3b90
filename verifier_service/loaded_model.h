// SPDX-License-Identifier: Apache-2.0
// A checkpoint directory made ready to compute with: backend, weights, K/V cache, tokenizer, and what the files
// recommend.
//
// Errors: what, which file, expected and got. Whatever is cheap to find wrong is found before the weights are read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/model/generation_config.h"
#include "common/model/model_weights.h"
#include "common/model/transformer.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/backend.h"
#include "kernels/ops.h"
#include "verifier_service/config.h"

namespace foretoken::verifier {

struct LoadedModel {
  model::ModelConfig config;
  tokenizer::Tokenizer tokenizer;
  std::vector<int32_t> end_token_ids;        // generation_config.json's, or else config.json's
  kernels::SamplingParams default_sampling;  // generation_config.json's
  std::string vocabulary_fingerprint;        // hex
  std::string numerics_fingerprint;
  std::unique_ptr<kernels::Backend> backend;  // outlives what is below
  std::unique_ptr<model::Transformer> transformer;
  model::KvCache kv;
};

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const Config& config, const model::LoadProgress& progress);

// As config.json's "architectures" spells it.
std::string ArchitectureName(model::Architecture architecture);

}  // namespace foretoken::verifier
