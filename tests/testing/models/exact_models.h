// SPDX-License-Identifier: Apache-2.0
// The models of the row invariance tests: the tiny models of tests/cases/models, and random models with other shapes.
//
//   windowed   a full layer, and layers with windows of 24, 80 and 100, which are no multiples of the attention tile.
//              It needs its 32 heads: rounding attention's output to bf16 hides most differences of single f32 bits.
//              So only a model with thousands of these outputs per row shows an order of sums that depends on others.
//   odd_heads  heads of 20, three to a kv head; yarn scaling; norms of heads, biases, a window of 100 on one layer
//   wide       products over 1,080 and 2,100 inputs, which batches of many rows compute in ranges; llama3 scaling
//
// And models that are stored as integers, with offsets and with scales that bf16 does not hold, or as codes that stand
// for other integers:
//   awq        a small Qwen3 in AWQ
//   mxfp4_U8   the same model in MXFP4
//   q4_k_m     the demo target's shapes in GGUF, with the types of a Q4_K_M file
//
// The original contexts of the scalings are 64 positions long. The tests go far beyond.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/model/config/config.h"
#include "tests/testing/models/loaded_model.h"

namespace foretoken::testing {

struct ExactModel {
  std::string name;
  std::optional<model::ModelConfig> config;  // of a random model; unset: tests/cases/models/`name`, or stored
  bool is_stored = false;
};

// `vocab_size` is the vocabulary size of the random models.
std::vector<ExactModel> RandomExactModels(int64_t vocab_size);
std::vector<ExactModel> AllExactModels();     // but not those that are stored as integers
std::vector<ExactModel> StoredExactModels();  // on a CPU

// Random models run on one rank.
LoadedModel LoadExactModel(const ExactModel& model, const LoadOptions& options = {});

}  // namespace foretoken::testing
