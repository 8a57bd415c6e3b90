// SPDX-License-Identifier: Apache-2.0
// A checkpoint directory, loaded and ready to run on the CPU.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/model/config.h"
#include "common/model/model_weights.h"
#include "common/model/transformer.h"
#include "common/weights/checkpoint.h"
#include "kernels/make_backend.h"

namespace foretoken::testing {

struct LoadedModel {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<model::Transformer> transformer;
  model::KvCache kv;
};

struct LoadOptions {
  int num_threads = 2;
  std::string isa = "auto";
  int32_t num_blocks = 64;
  // Puts a backend of the test's in front of the real one, before anything is made with it.
  std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> wrap_backend;
  model::TransformerOptions transformer = {.max_rows = 512, .max_logit_rows = 512, .max_positions = 1024};
};

inline std::unique_ptr<kernels::Backend> MakeBackend(const LoadOptions& options) {
  auto backend = kernels::MakeBackend({.num_threads = options.num_threads, .isa = options.isa}).backend;
  return options.wrap_backend ? options.wrap_backend(std::move(backend)) : std::move(backend);
}

inline LoadedModel LoadModel(const std::string& directory, const LoadOptions& options = {}) {
  LoadedModel loaded;
  loaded.backend = MakeBackend(options);
  const model::ModelConfig config = model::LoadModelConfig(directory).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
  loaded.transformer = std::make_unique<model::Transformer>(
      config, model::LoadWeights(config, checkpoint, *loaded.backend, nullptr).value(), *loaded.backend,
      options.transformer);
  loaded.kv = model::MakeKvCache(config, options.num_blocks, *loaded.backend);
  return loaded;
}

}  // namespace foretoken::testing
