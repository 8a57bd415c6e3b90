// SPDX-License-Identifier: Apache-2.0
// The checks of a proposer's configuration. If this test fails, a proposer starts with a value that it cannot serve, or
// an error does not name the wrong field.
#include "proposer_service/config.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::proposer {
namespace {

using ::testing::HasSubstr;

TEST(ProposerConfig, FieldsOutOfRangeAreNamed) {
  EXPECT_TRUE(Validate(Config{}).ok());
  EXPECT_THAT(
      Validate(Config{.method = "magic"}).ToString(),
      HasSubstr("method: expected ngram, suffix, draft, dflash, eagle, eagle3, mlp_speculator or medusa, got 'magic'"));
  EXPECT_THAT(Validate(Config{.limits = {.max_sessions = 0}}).ToString(), HasSubstr("max_sessions"));
  EXPECT_THAT(Validate(Config{.limits = {.max_context_tokens = -1}}).ToString(), HasSubstr("max_context_tokens"));
  EXPECT_THAT(Validate(Config{.limits = {.max_total_tokens = 0}}).ToString(), HasSubstr("max_total_tokens"));
  EXPECT_THAT(Validate(Config{.limits = {.max_streams = 0}}).ToString(), HasSubstr("max_streams"));
  for (const float share : {0.f, -1.f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(Validate(Config{.limits = {.max_stream_share = share}}).ToString(), HasSubstr("max_stream_share"));
  }
  EXPECT_THAT(Validate(Config{.limits = {.max_tree_nodes = 1025}}).ToString(), HasSubstr("max_tree_nodes"));
  EXPECT_THAT(Validate(Config{.ngram = {.min_length = 0}}).ToString(), HasSubstr("ngram_min_length"));
  EXPECT_THAT(Validate(Config{.method = "draft", .draft = {.model_directory = "/m", .expert_memory_mb = 0}}).ToString(),
              HasSubstr("expert_memory_mb: expected 1 to 1073741824, got 0"));
  EXPECT_THAT(Validate(Config{.method = "medusa",
                              .draft = {.model_directory = "/m", .target_directory = "/t", .feature_layers = "1,2"}})
                  .ToString(),
              HasSubstr("feature_layers: expected none for medusa, which reads the last hidden state, got 1,2"));
  EXPECT_THAT(Validate(Config{.method = "eagle3",
                              .draft = {.model_directory = "/m", .target_directory = "/t", .expert_memory_mb = 64}})
                  .ToString(),
              HasSubstr("expert_memory_mb: expected none for eagle3, which has no experts, got 64"));
  EXPECT_THAT(
      Validate(Config{.method = "eagle3",
                      .draft = {.model_directory = "/m", .target_directory = "/t", .projection_directory = "/n"}})
          .ToString(),
      HasSubstr("projection_directory: expected a directory, got \"/n\""));
  EXPECT_TRUE(Validate(Config{.method = "suffix"}).ok());
  EXPECT_THAT(Validate(Config{.suffix = {.max_depth = 0}}).ToString(), HasSubstr("suffix_max_depth"));
}

}  // namespace
}  // namespace foretoken::proposer
