// SPDX-License-Identifier: Apache-2.0
// `foretoken perplexity`. If these tests fail, it hides or invents what a quantisation costs.
#include "client/offline/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "client/offline/offline_engine.h"
#include "client/offline/oracle_proposer.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/weights/checkpoint.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::client {
namespace {

using ::testing::HasSubstr;

TEST(Perplexity, IsTheInverseOfTheMeanProbability) {
  const std::vector<TokenScore> scores = {{.logprob = std::log(0.5)}, {.logprob = std::log(0.125)}};
  const TextSummary summary = Summarize(scores);
  EXPECT_NEAR(summary.perplexity, 4, 1e-9);  // sqrt(2 * 8)
  // The logarithms lie one log(2) from their mean.
  EXPECT_NEAR(summary.standard_error, 4 * std::log(2) / std::sqrt(2.0), 1e-9);
}

TEST(Perplexity, ComparesTokenByToken) {
  const std::vector<TokenScore> before = {{std::log(0.5), 1}, {std::log(0.1), 2}};
  const std::vector<TokenScore> after = {{std::log(0.25), 1}, {std::log(0.05), 3}};
  const TextComparison change = Compare(before, after);
  EXPECT_NEAR(change.ratio, 2, 1e-9);
  EXPECT_NEAR(change.standard_error, 0, 1e-9);  // each token is twice as hard
  EXPECT_NEAR(change.same_likeliest, 0.5, 1e-9);
  EXPECT_EQ(Compare(before, before).ratio, 1);
}

std::string Disorder() {
  std::string text;
  for (uint32_t i = 0, state = 1; i < 1000; ++i) text += static_cast<char>('!' + (state = state * 75 % 65537) % 90);
  return text;
}

TEST(Perplexity, ScoresTheSecondHalfOfEveryWindow) {
  auto model = LoadOffline({.path = testing::SourcePath("deploy/demo/target")});
  ASSERT_TRUE(model.ok()) << model.status();
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat sat on the mat and ";
  const auto plain = model->tokenizer.Encode(text, {.add_special_tokens = false});
  const auto whole = model->tokenizer.Encode(text);
  const size_t num_begin = whole->size() - plain->size();
  const size_t num_windows = plain->size() / (64 - num_begin);
  const auto scores = ScoreText(*model, text, /*window=*/64);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_EQ(scores->size(), num_windows * (64 - 1 - 32));
  // A text that repeats itself is easy, and a text without order is not.
  const auto hard = ScoreText(*model, Disorder(), /*window=*/64);
  ASSERT_TRUE(hard.ok()) << hard.status();
  EXPECT_LT(4 * Summarize(*scores).perplexity, Summarize(*hard).perplexity);
}

TEST(Perplexity, ScoresAModelWhoseExpertsAreNotAllInMemory) {
  const testing::TempDir directory;
  directory.CopyFrom(testing::RandomCheckpoint("qwen3_moe").directory());
  std::filesystem::copy(testing::SourcePath("deploy/demo/target/tokenizer.json"), directory.path());
  const std::string text(400, 'a');
  std::vector<double> perplexities;
  for (const std::optional<int64_t> megabytes : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
    auto model = LoadOffline({.path = directory.path(), .expert_memory_mb = megabytes});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto scores = ScoreText(*model, text, /*window=*/32);
    ASSERT_TRUE(scores.ok()) << scores.status();
    perplexities.push_back(Summarize(*scores).perplexity);
    const model::ExpertUse use = model->transformer->expert_use();
    EXPECT_EQ(use.num_loads > 0, megabytes.has_value());
    EXPECT_LE(use.num_bytes, megabytes ? size_t{1} << 20 : SIZE_MAX);
  }
  EXPECT_EQ(perplexities[0], perplexities[1]);
}

TEST(Perplexity, TakesTheAnglesThatAServerWithTheSameLongestContextTakes) {
  const testing::TempDir directory;
  directory.CopyFrom(testing::RandomCheckpoint("phi3_longrope").directory());
  std::filesystem::copy(testing::SourcePath("deploy/demo/target/tokenizer.json"), directory.path());
  std::string text;
  for (int i = 0; i < 20; ++i) text += "the cat sat on the mat and ";
  std::vector<double> perplexities;
  for (const std::optional<int32_t> longest :
       {std::optional<int32_t>(), std::optional<int32_t>(4097), std::optional<int32_t>(4096)}) {
    auto model = LoadOffline({.path = directory.path(), .max_context_tokens = longest});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->transformer->options().max_positions, longest.value_or(8192));
    perplexities.push_back(Summarize(ScoreText(*model, text, /*window=*/32).value()).perplexity);
  }
  EXPECT_EQ(perplexities[0], perplexities[1]);
  EXPECT_NE(perplexities[0], perplexities[2]);
  EXPECT_THAT(LoadOffline({.path = directory.path(), .max_context_tokens = 8193}).status().message(),
              HasSubstr("--max_context_tokens: expected at most the model's 8192, got 8193"));
}

// An infinity in the embedding, which is the head, too: a logit is +inf in the rows that multiply it with a positive
// value, and -inf, which is a token that never comes, in all others.
TEST(Perplexity, NamesTheTokenWhoseLogitsAreNotFinite) {
  const testing::TempDir directory;
  directory.CopyFrom(testing::SourcePath("deploy/demo/target"));
  const std::string path = directory.path() + "/model.safetensors";
  std::string file = base::ReadFile(path).value();
  const auto checkpoint = weights::Checkpoint::Open(directory.path()).value();
  const weights::StoredTensor& embed = *checkpoint.FindStored("model.embed_tokens.weight");
  const std::string bytes(reinterpret_cast<const char*>(embed.bytes.data()), embed.bytes.size());
  file.replace(file.find(bytes) + bytes.size() - 2 * 254, 2, "\x80\x7f");  // of the last token
  std::filesystem::remove(path);
  directory.Write("model.safetensors", file);
  auto model = LoadOffline({.path = directory.path()});
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::Status status = ScoreText(*model, Disorder(), /*window=*/64).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.ToString(), HasSubstr("window 1, token "));
  EXPECT_THAT(status.ToString(), HasSubstr("log-probabilities are not finite"));
}

TEST(Perplexity, RefusesByName) {
  auto model = LoadOffline({.path = testing::SourcePath("deploy/demo/target")});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(ScoreText(*model, "short", 64).status().ToString(), HasSubstr("expected at least one window of"));
  EXPECT_THAT(ScoreText(*model, "", 64).status().ToString(), HasSubstr("the text has 0 tokens"));
  for (const int32_t window : {-1, 0, 15, 1 << 20}) {
    EXPECT_THAT(ScoreText(*model, "short", window).status().ToString(), HasSubstr("--window: expected 16 to"));
  }
  EXPECT_FALSE(ScoreText(*model, "\xff\xfe not UTF-8", 16).ok());
}

TEST(Perplexity, RefusesAWindowThatTheTokensBeforeATextFill) {
  const testing::TempDir directory;
  directory.CopyFrom(testing::SourcePath("deploy/demo/target"));
  nlohmann::json tokenizer = base::ReadJson(directory.path() + "/tokenizer.json").value();
  nlohmann::json pieces(16, {{"SpecialToken", {{"id", "t"}, {"type_id", 0}}}});
  pieces.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  tokenizer["post_processor"] = {{"type", "TemplateProcessing"},
                                 {"single", pieces},
                                 {"special_tokens", {{"t", {{"id", "t"}, {"ids", {0}}, {"tokens", {"t"}}}}}}};
  std::filesystem::remove(directory.path() + "/tokenizer.json");
  directory.Write("tokenizer.json", tokenizer.dump());
  auto model = LoadOffline({.path = directory.path()});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(ScoreText(*model, Disorder(), 16).status().ToString(), HasSubstr("expected more than the 16 tokens"));
  EXPECT_TRUE(ScoreText(*model, Disorder(), 17).ok());
}

}  // namespace
}  // namespace foretoken::client
