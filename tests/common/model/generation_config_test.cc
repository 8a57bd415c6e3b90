// SPDX-License-Identifier: Apache-2.0
// Reading generation_config.json. If this test fails, requests get wrong default parameters, or a model does not stop
// at its end token.
#include "common/model/config/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::model {
namespace {

using ::testing::HasSubstr;
using testing::SourcePath;
using Ids = std::vector<int64_t>;

absl::StatusOr<GenerationConfig> ParseGeneration(const std::string& text) {
  return ParseGenerationConfig(text, "g.json");
}

TEST(GenerationConfig, ReadsRecommendations) {
  const auto config = LoadGenerationConfig(SourcePath("tests/cases/models/qwen2"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->eos_token_ids, Ids{2});
  EXPECT_EQ(config->temperature, 0.7f);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->top_p, 0.8f);
  EXPECT_EQ(config->repetition_penalty, 1.05f);
  EXPECT_EQ(config->min_p, std::nullopt);
}

TEST(GenerationConfig, ReadsAListOfEosIds) {
  const auto config = LoadGenerationConfig(SourcePath("tests/cases/models/llama-llama3-tied"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->eos_token_ids, (Ids{2, 5}));
}

TEST(GenerationConfig, IsEmptyIfTheFileIsAbsent) {
  const testing::TempDir dir;
  const auto config = LoadGenerationConfig(dir.path());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->eos_token_ids, Ids{});
  EXPECT_EQ(config->temperature, std::nullopt);
}

TEST(GenerationConfig, DoSampleFalseIsGreedy) {
  EXPECT_EQ(ParseGeneration(R"({"do_sample":false,"temperature":0.6})")->temperature, 0);
  EXPECT_EQ(ParseGeneration(R"({"do_sample":true,"temperature":0.6})")->temperature, 0.6f);
  EXPECT_EQ(ParseGeneration(R"({"temperature":0.6})")->temperature, 0.6f);
}

struct BadGenerationConfig {
  const char* what;
  const char* text;
  const char* message;
};

const std::string kDeepNesting = "{\"x\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";

const BadGenerationConfig kBadGenerationConfigs[] = {
    {"NoJson", "{", "g.json: not valid JSON"},
    {"DeepNesting", kDeepNesting.c_str(), "g.json: expected JSON of at most 64 nested levels"},
    {"NegativeEos", R"({"eos_token_id":-1})", "g.json: eos_token_id expects ids of at least 0, got -1"},
    {"NegativeTemperature", R"({"temperature":-0.1})", "temperature expects at least 0, in single precision, got -0.1"},
    {"TemperatureIsAString", R"({"temperature":"hot"})", R"(temperature expects a finite number, got "hot")"},
    {"DoSampleIsANumber", R"({"do_sample":1})", "do_sample expects true or false, got 1"},
    {"TemperatureIsInfiniteAsAFloat", R"({"temperature":1e300})",
     "temperature expects at least 0, in single precision"},
    {"NegativeTopK", R"({"top_k":-5})", "top_k expects from 0 to 2147483647, got -5"},
    {"HugeTopK", R"({"top_k":4294967297})", "top_k expects from 0 to 2147483647, got 4294967297"},
    {"ZeroTopP", R"({"top_p":0})", "top_p expects above 0 and at most 1, got 0"},
    {"TopPAboveOne", R"({"top_p":1.5})", "top_p expects above 0 and at most 1, got 1.5"},
    {"MinPAboveOne", R"({"min_p":2})", "min_p expects from 0 to 1, got 2"},
    {"ZeroPenalty", R"({"repetition_penalty":0})", "repetition_penalty expects above 0, in single precision, got 0"},
    {"PenaltyIsZeroAsAFloat", R"({"repetition_penalty":1e-300})", "repetition_penalty expects above 0"},
};

class BadGeneration : public ::testing::TestWithParam<BadGenerationConfig> {};

TEST_P(BadGeneration, IsRefusedByName) {
  const absl::Status status = ParseGeneration(GetParam().text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(GenerationConfig, BadGeneration, ::testing::ValuesIn(kBadGenerationConfigs),
                         [](const auto& info) { return std::string(info.param.what); });

}  // namespace
}  // namespace foretoken::model
