// SPDX-License-Identifier: Apache-2.0
// Switches of the families, each set wrong on a tiny model (tests/cases/models). A comparison of logits is worth
// something only if it finds them.
#pragma once

#include <utility>
#include <variant>

#include "common/model/config/config.h"

namespace foretoken::testing {

struct WrongSwitch {
  const char* name;
  const char* model;
  void (*spoil)(model::ModelConfig& config);
};

inline constexpr WrongSwitch kWrongSwitches[] = {
    {"NormOffset", "gemma2", [](model::ModelConfig& c) { c.norm_offset = 0; }},
    {"NormOffsetWhereThereIsNone", "llama", [](model::ModelConfig& c) { c.norm_offset = 1; }},
    {"AttentionScale", "gemma2", [](model::ModelConfig& c) { c.attention_scale.reset(); }},
    {"AttentionCap", "gemma2", [](model::ModelConfig& c) { c.attention_cap.reset(); }},
    {"LogitCap", "gemma2", [](model::ModelConfig& c) { c.logit_cap.reset(); }},
    {"EmbeddingMultiplier", "gemma3", [](model::ModelConfig& c) { c.embedding_multiplier = 1; }},
    {"Activation", "gemma3", [](model::ModelConfig& c) { c.gating.activation = kernels::Activation::kSilu; }},
    {"WindowOffByOne", "gemma3", [](model::ModelConfig& c) { c.sliding_windows[0] = *c.sliding_windows[0] - 1; }},
    {"WindowInTheWrongLayer", "gemma2",
     [](model::ModelConfig& c) { std::swap(c.sliding_windows[0], c.sliding_windows[1]); }},
    {"SlidingRope", "gemma3", [](model::ModelConfig& c) { c.sliding_rope.reset(); }},
    {"ResidualMultiplier", "granite", [](model::ModelConfig& c) { c.residual_multiplier = 1; }},
    {"LogitMultiplier", "granite", [](model::ModelConfig& c) { c.logit_multiplier = 1; }},
    {"GraniteAttentionScale", "granite", [](model::ModelConfig& c) { c.attention_scale.reset(); }},
    {"RotaryDim", "phi3-longrope", [](model::ModelConfig& c) { c.rotary_dim.value() -= 2; }},
    {"ShortFactors", "phi3-longrope",
     [](model::ModelConfig& c) { std::get<model::DivisorScaling>(c.rope.scaling).long_divisors.clear(); }},
    {"OneExpertTooFew", "qwen3-moe", [](model::ModelConfig& c) { --c.experts.num_chosen; }},
    {"WeightsOverAllExperts", "mixtral",
     [](model::ModelConfig& c) { c.experts.weighting = kernels::ExpertWeighting::kSoftmaxOverAll; }},
    {"WeightsOverChosenExperts", "qwen3-moe-mixed",
     [](model::ModelConfig& c) { c.experts.weighting = kernels::ExpertWeighting::kSoftmaxOverChosen; }},
    {"SigmoidsUndivided", "glm4-moe",
     [](model::ModelConfig& c) { c.experts.weighting = kernels::ExpertWeighting::kSigmoid; }},
    {"ExpertScale", "glm4-moe", [](model::ModelConfig& c) { c.experts.scale = 1; }},
    {"RotaryPart", "glm4-moe", [](model::ModelConfig& c) { c.rotary_dim.reset(); }},
    {"Sinks", "gpt-oss", [](model::ModelConfig& c) { c.attention_sinks = false; }},
    {"LimitOfTheGate", "gpt-oss", [](model::ModelConfig& c) { c.gating.limit.reset(); }},
    {"OffsetOfUp", "gpt-oss", [](model::ModelConfig& c) { c.gating.up_offset = 0; }},
    {"GateAndUpTakeTurns", "gpt-oss", [](model::ModelConfig& c) { c.gating.is_interleaved = false; }},
    {"QuickGelu", "gpt-oss", [](model::ModelConfig& c) { c.gating.activation = kernels::Activation::kSilu; }},
    {"TruncatedRamp", "gpt-oss",
     [](model::ModelConfig& c) { std::get<model::YarnScaling>(c.rope.scaling).truncate = true; }},
    {"NormsOfHeadsInsteadOfTheWhole", "olmo2", [](model::ModelConfig& c) { c.whole_qk_norm = false; }},
    {"LayersWithoutRotation", "smollm3", [](model::ModelConfig& c) { c.rotates.clear(); }},
};

// Of which a token's best expert is left out, as another mistake.
inline constexpr const char* kModelsWithExperts[] = {"mixtral", "qwen3-moe", "glm4-moe", "gpt-oss"};

}  // namespace foretoken::testing
