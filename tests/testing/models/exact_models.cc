// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/exact_models.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/models/quantized_twins.h"
#include "tests/testing/models/random_model.h"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::testing {
namespace {

using Windows = std::vector<std::optional<int64_t>>;

model::ModelConfig Windowed() {
  return {.architecture = model::Architecture::kMistral,
          .hidden_size = 96,
          .intermediate_size = 160,
          .num_layers = 4,
          .num_heads = 32,
          .num_kv_heads = 4,
          .head_dim = 32,
          .max_position_embeddings = 1024,
          .sliding_windows = Windows{std::nullopt, 24, 80, 100}};
}

model::ModelConfig OddHeads() {
  return {.architecture = model::Architecture::kQwen3,
          .hidden_size = 72,
          .intermediate_size = 130,
          .num_layers = 2,
          .num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 20,
          .max_position_embeddings = 1024,
          .rope = {.scaling = model::YarnScaling{.factor = 16, .original_max_positions = 64}},
          .attention_bias = true,
          .attention_output_bias = true,
          .qk_norm = true,
          .sliding_windows = Windows{std::nullopt, 100}};
}

model::ModelConfig Wide() {
  return {.hidden_size = 1080,
          .intermediate_size = 2100,
          .num_layers = 1,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 64,
          .max_position_embeddings = 1024,
          .rope = {.theta = 500000, .scaling = model::Llama3Scaling{.factor = 16, .original_max_positions = 64}},
          .tie_word_embeddings = true,
          .sliding_windows = Windows(1)};
}

LoadedModel LoadStoredModel(const std::string& name, const LoadOptions& options) {
  if (name != "q4_k_m") {
    const QuantizedTwins twins(*std::ranges::find(QuantizedFormats(), name, &QuantizedFormat::name));
    return LoadModel(twins.quantized.path(), options);
  }
  const TempDir dir;
  const GgufWriter writer = GgufTwin(SourcePath("deploy/demo/target"), {.encode = InTypesOfQ4KM});
  return LoadModel(dir.Write("model.gguf", writer.Bytes()), options);
}

}  // namespace

std::vector<ExactModel> RandomExactModels(int64_t vocab_size) {
  std::vector<ExactModel> models = {{"windowed", Windowed()}, {"odd_heads", OddHeads()}, {"wide", Wide()}};
  for (ExactModel& model : models) model.config->vocab_size = vocab_size;
  return models;
}

std::vector<ExactModel> AllExactModels() {
  std::vector<ExactModel> models;
  for (const char* name : kTinyModels) models.push_back({name, std::nullopt});
  for (ExactModel& model : RandomExactModels(/*vocab_size=*/331)) models.push_back(std::move(model));
  return models;
}

std::vector<ExactModel> StoredExactModels() {
  return {{.name = "awq", .is_stored = true},
          {.name = "mxfp4_U8", .is_stored = true},
          {.name = "q4_k_m", .is_stored = true}};
}

LoadedModel LoadExactModel(const ExactModel& model, const LoadOptions& options) {
  if (model.is_stored) return LoadStoredModel(model.name, options);
  if (!model.config.has_value()) return LoadModel(SourcePath("tests/cases/models/" + model.name), options);
  LoadedModel loaded;
  loaded.ranks = MakeRanks(options);
  // Rows of unit variance keep their size through a matrix. So a softmax is neither flat nor concentrated on one entry.
  const float scale = 1.0f / std::sqrt(static_cast<float>(model.config->hidden_size));
  loaded.transformer = std::make_unique<model::Transformer>(
      *model.config, RandomWeights(*model.config, loaded.backend(), scale), loaded.backend(), options.transformer);
  loaded.kv = loaded.transformer->MakeKvCache(options.num_blocks);
  return loaded;
}

}  // namespace foretoken::testing
