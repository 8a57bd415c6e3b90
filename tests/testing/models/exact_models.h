// SPDX-License-Identifier: Apache-2.0
// The models that row invariance is shown on: the tiny ones of tests/cases/models, and random ones whose shapes reach
// what those do not.
//
//   windowed   a full layer and layers with windows of 24, 80 and 100: below the attention tile, and no multiples of
//   it.
//              Its 32 heads matter: rounding attention's output to bf16 hides most differences of single f32 bits, so
//              only a model with thousands of these outputs per row shows an order of sums that is not the row's own
//   odd_heads  heads of 20, three to a kv head; yarn scaling; norms of heads, biases, a window of 100 on one layer
//   wide       products over 1,080 and 2,100 inputs, which many rows go through in ranges; llama3 scaling
//
// The scalings' original contexts are 64 positions long. Tests go far beyond.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "tests/testing/models/loaded_model.h"

namespace foretoken::testing {

struct ExactModel {
  std::string name;
  std::optional<model::ModelConfig> config;  // of a random model; unset: tests/cases/models/`name`
};

// `vocab_size` is that of the random ones.
std::vector<ExactModel> RandomExactModels(int64_t vocab_size);
std::vector<ExactModel> AllExactModels();

// Random ones run on one rank.
LoadedModel LoadExactModel(const ExactModel& model, const LoadOptions& options = {});

}  // namespace foretoken::testing
