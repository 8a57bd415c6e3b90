// SPDX-License-Identifier: Apache-2.0
// Heads of EAGLE-1 and EAGLE-2 compute what their definition says. If these tests fail, a head drafts at a fraction of
// its acceptance, and nothing else shows it.
#include "proposer_service/features/eagle.h"

#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reference/drafters.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

using ::testing::HasSubstr;
using testing::kTinyHidden;

absl::StatusOr<Drafter> LoadTinyEagle(const testing::TinyDrafter& head, const testing::TempDir& dir,
                                      const testing::TinyTarget& target) {
  head.Write(dir);
  return LoadEagle(
      {.model_directory = dir.path(), .target_directory = target.directory(), .num_threads = 2, .kv_cache_mb = 1});
}

TEST(Eagle, ComputesTheDefinition) {
  const testing::TinyTarget target;
  const reference::Tensors of_target = reference::ReadTensors(target.directory() + "/model.safetensors");
  const std::vector<int32_t> chain = {3, 1000, 41, 7, 90, 1100};
  const auto features = testing::RandomFeatures(4, kTinyHidden, 9);
  for (const testing::TinyEagle& form :
       {testing::TinyEagle{}, {.has_fc_bias = false, .has_embedding = false}, {.has_norms = true}}) {
    const testing::TempDir dir;
    const absl::StatusOr<Drafter> drafter = LoadTinyEagle(testing::MakeTinyEagle(form), dir, target);
    ASSERT_TRUE(drafter.ok()) << drafter.status();
    EXPECT_TRUE(drafter->description.features->layers.empty()) << "the last hidden state";
    EXPECT_FALSE(drafter->description.features->projection.has_value());
    const reference::Eagle definition({.is_third = false,
                                       .hidden_size = kTinyHidden,
                                       .num_heads = 4,
                                       .num_kv_heads = 2,
                                       .head_dim = 16,
                                       .block = "layers.0."},
                                      reference::ReadTensors(dir.path() + "/model.safetensors"),
                                      of_target.at("model.embed_tokens.weight"), of_target.at("lm_head.weight"));
    std::vector<reference::DraftInput> inputs;
    for (size_t i = 0; i < chain.size(); ++i) {
      inputs.push_back({.token_id = chain[i]});
      if (i >= features.size()) continue;
      inputs.back().feature.emplace();
      for (const uint16_t bits : features[i]) inputs.back().feature->push_back(kernels::FloatFromBf16(bits));
    }
    const std::vector<testing::Row> rows = testing::RunDraftChain(*drafter->model, chain, features);
    const std::vector<reference::DraftedRow> expected = definition.Run(inputs);
    for (size_t i = 0; i < rows.size(); ++i) {
      double largest = 0, size = 0;
      for (size_t id = 0; id < rows[i].size(); ++id) {
        largest = std::max(largest, std::abs(rows[i][id] - expected[i].logits[id]));
        size = std::max(size, std::abs(expected[i].logits[id]));
      }
      // A few roundings to bf16, 2^-9 each.
      EXPECT_LT(largest, 0.02 * size) << "row " << i;
    }
  }
}

// The layout of speculators is the same head under other names.
TEST(Eagle, ReadsTheNamesOfSpeculators) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"fc.weight", "fusion_fc.weight"},
      {"fc.bias", "fusion_fc.bias"},
      {"embed_layernorm.weight", "embedding_layernorm.weight"},
      {"layers.0.input_layernorm.weight", "transformer.input_layernorm.weight"},
      {"layers.0.self_attn.q_proj.weight", "transformer.self_attn.q_proj.weight"},
      {"lm_head_layernorm.weight", "pre_lm_head_layernorm.weight"}};
  const testing::TinyTarget target;
  const testing::TinyDrafter head = testing::MakeTinyEagle({.has_norms = true});
  testing::TinyDrafter renamed = head;
  for (const auto& [name, other] : kNames) {
    auto tensor = renamed.tensors.extract(name);
    tensor.key() = other;
    renamed.tensors.insert(std::move(tensor));
  }
  renamed.config = {{"speculators_model_type", "eagle"}, {"transformer_layer_config", head.config}};
  const auto rows_of = [&](const testing::TinyDrafter& files) {
    const testing::TempDir dir;
    return testing::RunDraftChain(*LoadTinyEagle(files, dir, target).value().model, {3, 1000, 41, 7},
                                  testing::RandomFeatures(2, kTinyHidden, 9));
  };
  EXPECT_EQ(rows_of(renamed), rows_of(head));
}

TEST(Eagle, AHeadThatDoesNotFitIsRefusedByName) {
  const testing::TinyTarget target;
  const auto error_of = [&](const testing::TinyDrafter& head) {
    const testing::TempDir dir;
    return std::string(LoadTinyEagle(head, dir, target).status().message());
  };
  EXPECT_THAT(error_of(testing::MakeTinyEagle3({})),
              HasSubstr("expected a head of EAGLE-1 or -2, which has no tensor norm.weight"));
  testing::TinyDrafter head = testing::MakeTinyEagle({});
  head.Add("fc.weight", {kTinyHidden, 3 * kTinyHidden});
  EXPECT_THAT(error_of(head),
              HasSubstr("tensor fc.weight: expected 2 hidden_size = 128 inputs, as EAGLE-1 has, got 192"));
  head = testing::MakeTinyEagle({});
  head.Add("layers.0.input_layernorm.weight", {kTinyHidden});
  EXPECT_THAT(error_of(head), HasSubstr("which has no tensor layers.0.input_layernorm.weight"));
  head = testing::MakeTinyEagle({});
  head.config["hidden_size"] = 32;
  EXPECT_THAT(error_of(head), HasSubstr("hidden_size expects the target's hidden size 64, got 32"));
  head.config = 3;
  EXPECT_THAT(error_of(head), HasSubstr("config.json"));
}

}  // namespace
}  // namespace foretoken::proposer
