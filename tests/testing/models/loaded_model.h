// SPDX-License-Identifier: Apache-2.0
// A loaded checkpoint directory, ready to run. It runs on the test device unless the test names another device.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/checkpoint_fit.h"
#include "common/model/config/config.h"
#include "common/model/model_weights.h"
#include "common/model/transformer.h"
#include "common/parallel/rank_group.h"
#include "common/weights/checkpoint.h"
#include "kernels/make_backend.h"
#include "tests/testing/models/test_device.h"

namespace foretoken::testing {

struct LoadedModel {
  std::unique_ptr<parallel::RankGroup> ranks;
  std::unique_ptr<model::Transformer> transformer;
  model::KvCache kv;

  kernels::Backend& backend() { return ranks->backend(0); }
};

struct LoadOptions {
  int num_threads = 2;  // of all ranks together, at least one each
  int num_ranks = 1;
  std::string isa = "auto";
  kernels::QuantizationOptions quantization;
  int32_t num_blocks = 64;
  std::string device = TestDevice();
  // Makes a rank's backend.
  std::function<kernels::MadeBackend(const kernels::BackendOptions&)> make_backend = kernels::MakeBackend;
  // Puts a test's backend in front of the real one before its first use.
  std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> wrap_backend;
  model::TransformerOptions transformer = {.max_rows = 512, .max_logit_rows = 512, .max_positions = 1024};
};

inline std::unique_ptr<parallel::RankGroup> MakeRanks(const LoadOptions& options) {
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    kernels::MadeBackend made = options.make_backend({.device = options.device,
                                                      .num_threads = options.num_threads,
                                                      .isa = options.isa,
                                                      .quantization = options.quantization,
                                                      .rank = rank,
                                                      .num_ranks = options.num_ranks});
    backends.push_back(std::move(made.backend));
    if (options.wrap_backend) backends.back() = options.wrap_backend(std::move(backends.back()));
  }
  return parallel::RankGroup::Make(options.device, std::move(backends)).value();
}

inline LoadedModel LoadModel(const std::string& directory, const LoadOptions& options = {}) {
  LoadedModel loaded;
  loaded.ranks = MakeRanks(options);
  model::ModelConfig config = model::LoadModelConfig(directory).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
  model::FindStoredNames(checkpoint, config);
  model::WeightReader reader({});
  std::vector<model::ModelWeights> weights;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const model::Shard shard = {.rank = rank, .num_ranks = options.num_ranks};
    weights.push_back(model::LoadWeights(config, checkpoint, loaded.ranks->backend(rank), reader, shard).value());
  }
  loaded.transformer =
      std::make_unique<model::Transformer>(config, std::move(weights), *loaded.ranks, options.transformer);
  loaded.kv = loaded.transformer->MakeKvCache(options.num_blocks);
  return loaded;
}

}  // namespace foretoken::testing
