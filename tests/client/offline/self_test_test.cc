// SPDX-License-Identifier: Apache-2.0
// `foretoken selftest`. If these tests fail, it calls different texts equal, or does not verify at the widths it names.
#include "client/offline/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "client/offline/offline_engine.h"
#include "tests/testing/paths.h"

namespace foretoken::client {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<std::vector<WidthResult>> RunOnDemo(const kernels::QuantizationOptions& quantization,
                                                   const SelfTestOptions& options) {
  auto model =
      LoadOffline({.path = testing::SourcePath("deploy/demo/target"), .backend = {.quantization = quantization}});
  if (!model.ok()) return model.status();
  return RunSelfTest(*model, options, [](const WidthResult&) {});
}

// Widths 1 to 32 in every numeric mode, greedy and drawn.
TEST(SelfTest, NoTokenChangesInAnyMode) {
  for (const kernels::QuantizationOptions& quantization : {kernels::QuantizationOptions{},
                                                           {.weights = "int8"},
                                                           {.weights = "int4", .head = "int8"},
                                                           {.weights = "int8", .head = "int4", .activations = "int8"},
                                                           {.weights = "int4", .activations = "int8"},
                                                           {.kv_cache = "int8"},
                                                           {.weights = "int4", .kv_cache = "fp8"}}) {
    SCOPED_TRACE(quantization.weights + " " + quantization.activations + " " + quantization.kv_cache);
    const auto results =
        RunOnDemo(quantization, {.prompts = {"Once upon a time", "def add(a, b):\n", "1, 2, 3,"}, .num_tokens = 20});
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->size(), 64);
    for (const WidthResult& result : *results) {
      SCOPED_TRACE(result.width);
      EXPECT_THAT(result.differences, IsEmpty());
      EXPECT_EQ(result.num_tokens, 60);
      EXPECT_EQ(result.rows_reached, result.width);
      EXPECT_EQ(result.num_verified == 0, result.width == 1);
      EXPECT_LE(result.num_verified, result.num_steps * (result.width - 1));
    }
    EXPECT_EQ(results->at(0).num_steps, 60);
    EXPECT_LT(results->at(15).num_steps, 40);  // wide trees have right guesses
  }
}

// Together they would not fit into a step.
TEST(SelfTest, ReachesTheWidthWithManyPrompts) {
  std::vector<std::string> prompts;
  for (int i = 0; i < 70; ++i) prompts.push_back(std::string(i % 7 + 1, static_cast<char>('a' + i % 26)));
  const auto results = RunOnDemo({}, {.prompts = prompts, .num_tokens = 6, .max_width = 9});
  ASSERT_TRUE(results.ok()) << results.status();
  for (const WidthResult& result : *results) {
    EXPECT_EQ(result.rows_reached, result.width);
    EXPECT_THAT(result.differences, IsEmpty());
    EXPECT_EQ(result.num_tokens, 70 * 6);
  }
}

TEST(SelfTest, SaysWhatATextWasTooShortFor) {
  const auto results = RunOnDemo({}, {.prompts = {"abc"}, .num_tokens = 3, .max_width = 8});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->at(3).rows_reached, 4);
  EXPECT_LT(results->at(7).rows_reached, 8);
}

TEST(SelfTest, FindsTheFirstDifference) {
  EXPECT_EQ(FirstDifference(0, {1, 2, 3}, {1, 2, 3}), std::nullopt);
  const auto other = FirstDifference(2, {1, 2, 3}, {1, 5, 3});
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->prompt, 2);
  EXPECT_EQ(other->position, 1);
  EXPECT_EQ(other->plain_id, 2);
  EXPECT_EQ(other->speculated_id, 5);
  const auto shorter = FirstDifference(0, {1, 2, 3}, {1, 2});
  ASSERT_TRUE(shorter.has_value());
  EXPECT_EQ(shorter->position, 2);
  EXPECT_EQ(shorter->plain_id, 3);
  EXPECT_EQ(shorter->speculated_id, std::nullopt);
}

TEST(SelfTest, RefusesAPromptThatDoesNotFit) {
  EXPECT_THAT(RunOnDemo({}, {.prompts = {"a", std::string(100000, 'x')}}).status().ToString(),
              HasSubstr("prompt 2: expected"));
}

}  // namespace
}  // namespace foretoken::client
