// SPDX-License-Identifier: Apache-2.0
// Rotary frequencies against transformers. If this test fails, a model with rotary scaling emits wrong tokens, most of
// all in long contexts.
#include "common/model/config/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/base/mapped_file.h"
#include "common/model/config/config.h"
#include "nlohmann/json.hpp"
#include "tests/testing/paths.h"

namespace foretoken::model {
namespace {

using nlohmann::json;

// transformers computes the frequencies in float32, in about ten roundings of 6e-8 each. The power of theta adds its
// exponent's error times ln(theta).
TEST(ComputeRopeFrequencies, AgreesWithTransformersForEveryScaling) {
  const json cases = json::parse(base::ReadFile(testing::SourcePath("tests/cases/models/rope.json")).value())["cases"];
  ASSERT_EQ(cases.size(), 10);
  for (const json& reference : cases) {
    const std::string text = reference["config"].dump();
    const auto config = ParseModelConfig(text, "rope.json");
    ASSERT_TRUE(config.ok()) << config.status();
    const RopeFrequencies frequencies = ComputeRopeFrequencies(
        config->rope, config->rotary_dim.value_or(config->head_dim), config->max_position_embeddings);
    const auto expected = reference["inverse_frequencies"].get<std::vector<double>>();
    ASSERT_EQ(frequencies.inverse.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(frequencies.inverse[i], expected[i], 2e-6 * expected[i]) << "pair " << i << " of " << text;
    }
    EXPECT_NEAR(frequencies.attention_factor, reference["attention_factor"].get<double>(), 1e-12) << text;
  }
}

TEST(ComputeRopeFrequencies, UnscaledIsAPowerOfTheta) {
  const RopeFrequencies frequencies = ComputeRopeFrequencies({.theta = 10000, .scaling = {}}, 4, 100);
  ASSERT_EQ(frequencies.inverse.size(), 2);
  EXPECT_DOUBLE_EQ(frequencies.inverse[0], 1);
  EXPECT_DOUBLE_EQ(frequencies.inverse[1], 0.01);
  EXPECT_EQ(frequencies.attention_factor, 1);
}

TEST(MakeRopeTables, HoldsCosAndSinTimesTheAttentionFactor) {
  const RopeTables tables = MakeRopeTables({.inverse = {1, 0.01}, .attention_factor = 1.5}, 3);
  ASSERT_EQ(tables.cos.size(), 6);
  ASSERT_EQ(tables.sin.size(), 6);
  EXPECT_EQ(tables.cos[0], 1.5f);
  EXPECT_EQ(tables.sin[1], 0.0f);
  EXPECT_EQ(tables.cos[4], static_cast<float>(1.5 * std::cos(2.0)));
  EXPECT_EQ(tables.sin[5], static_cast<float>(1.5 * std::sin(0.02)));
}

}  // namespace
}  // namespace foretoken::model
