// SPDX-License-Identifier: Apache-2.0
// Models whose experts have less memory than they need. If this test fails, a token depends on the memory that a server
// has for experts, or the server takes more than it was allowed.
#include "common/model/expert_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/model_weights.h"
#include "common/model/runnable_model.h"
#include "common/model/weight_digest.h"
#include "common/parallel/rank_group.h"
#include "kernels/make_backend.h"
#include "tests/testing/fakes/expert_keeping_backend.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"

namespace foretoken::model {
namespace {

using ::testing::HasSubstr;

std::string ModelDirectory(const std::string& model) { return testing::SourcePath("tests/cases/models/") + model; }

std::shared_ptr<const weights::Checkpoint> Open(const std::string& directory) {
  return std::make_shared<const weights::Checkpoint>(weights::Checkpoint::Open(directory).value());
}

// As testing::LoadModel, with room for two experts on each rank.
testing::LoadedModel LoadWithTwoExperts(const std::string& directory, const testing::LoadOptions& options) {
  testing::LoadedModel loaded;
  loaded.ranks = testing::MakeRanks(options);
  const ModelConfig config = LoadModelConfig(directory).value();
  const quantization::OpenedWeights opened(Open(directory));
  const ExpertSource source = {.config = config, .opened = opened, .ranks = loaded.ranks.get()};
  WeightReader reader({});
  const ModelWeights whole =
      LoadWeights(config, opened, loaded.ranks->backend(0), reader, {.num_ranks = options.num_ranks}).value();
  const size_t num_bytes = whole.experts->sizes().back()[0].num_bytes * 2 * options.num_ranks;
  const ExpertPlan plan = PlanExperts(source, num_bytes).value();
  EXPECT_FALSE(plan.keeps_all());
  std::vector<ModelWeights> weights;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const Shard shard = {.rank = rank, .num_ranks = options.num_ranks};
    weights.push_back(LoadWithoutExperts(config, opened, loaded.ranks->backend(rank), reader, shard).value());
    weights.back().experts = MakeExpertStore(source, plan, rank);
  }
  loaded.transformer = std::make_unique<Transformer>(config, std::move(weights), *loaded.ranks, options.transformer);
  loaded.kv = loaded.transformer->MakeKvCache(options.num_blocks);
  return loaded;
}

struct BoundedMode {
  const char* model;
  int num_ranks = 1;
  const char* weights = "none";
};

class BoundedExperts : public ::testing::TestWithParam<BoundedMode> {};

TEST_P(BoundedExperts, GiveTheBitsOfAllExperts) {
  const std::string directory = ModelDirectory(GetParam().model);
  const testing::LoadOptions options = {
      .num_ranks = GetParam().num_ranks, .quantization = {.weights = GetParam().weights}, .device = "cpu"};
  testing::LoadedModel all = testing::LoadModel(directory, options), some = LoadWithTwoExperts(directory, options);
  const std::vector<int32_t> tokens = testing::RandomTokens(60, all.transformer->config().vocab_size, 1);
  const std::vector<int32_t> blocks = testing::Iota(0, 4);
  const testing::ChainRun run = {.tokens = tokens, .block_table = blocks, .chunks = {7, 40, 1}};
  EXPECT_TRUE(testing::SameBits(testing::DecodeChain(some, run), testing::DecodeChain(all, run)));
  const ExpertUse use = some.transformer->expert_use(), use_of_all = all.transformer->expert_use();
  EXPECT_GT(use.num_loads, 30);
  EXPECT_GT(use.num_bytes, 0);
  EXPECT_LT(use.num_bytes, use_of_all.num_bytes);
  EXPECT_EQ(use_of_all.num_loads, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, BoundedExperts,
                         ::testing::Values(BoundedMode{"mixtral"}, BoundedMode{"qwen3-moe", 2},
                                           BoundedMode{"glm4-moe", 2}, BoundedMode{"gpt-oss"},
                                           BoundedMode{"gpt-oss", 2}, BoundedMode{"gpt-oss-plain"},
                                           BoundedMode{"mixtral", 1, "int4"}, BoundedMode{"qwen3-moe", 1, "int8"}),
                         [](const auto& info) {
                           std::string name = std::string(info.param.model) + "_" + info.param.weights + "_" +
                                              std::to_string(info.param.num_ranks);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// A model with the tokenizer of another, which no part of this test asks.
OpenedModel OpenTiny(const std::string& model, int32_t num_ranks) {
  OpenedModel opened = OpenModel({.directory = testing::SourcePath("deploy/demo/draft")}).value();
  opened.ranks = testing::MakeRanks({.num_ranks = num_ranks, .device = "cpu"});
  opened.config = LoadModelConfig(ModelDirectory(model)).value();
  opened.weights = std::make_unique<quantization::OpenedWeights>(Open(ModelDirectory(model)));
  return opened;
}

absl::StatusOr<RunnableModel> LoadTiny(const std::string& model, int32_t num_ranks,
                                       std::optional<size_t> max_expert_bytes) {
  return LoadModel(OpenTiny(model, num_ranks),
                   {.max_rows = 16,
                    .context = {.max_context_tokens = 64, .num_blocks = 8},
                    .digest_weights = true,
                    .max_expert_bytes = max_expert_bytes},
                   nullptr);
}

size_t ExpertBytesAtTheStart(const std::string& model, int32_t num_ranks, std::optional<size_t> max_expert_bytes) {
  return LoadTiny(model, num_ranks, max_expert_bytes)->transformer->expert_use().num_bytes;
}

TEST(LoadModelWithExperts, SaysTheSameAboutTheWeightsWithABoundAndWithout) {
  for (const char* model : {"mixtral", "glm4-moe", "gpt-oss", "gpt-oss-plain"}) {
    for (const int32_t num_ranks : {1, 2}) {
      if (num_ranks == 2 && std::string(model) == "gpt-oss-plain") continue;  // has one K/V head
      const RunnableModel all = LoadTiny(model, num_ranks, std::nullopt).value();
      const RunnableModel some = LoadTiny(model, num_ranks, 100'000).value();
      EXPECT_EQ(some.weight_digest, all.weight_digest) << model;
      EXPECT_EQ(some.weight_use.formats, all.weight_use.formats);
      EXPECT_EQ(some.weight_use.bits_per_weight, all.weight_use.bits_per_weight);
      EXPECT_EQ(some.weight_use.bytes_per_step, all.weight_use.bytes_per_step);
      EXPECT_EQ(some.transformer->expert_use().num_bytes, 0) << "experts are packed before a token chooses them";
      EXPECT_GT(all.transformer->expert_use().num_bytes, 100'000);
    }
  }
}

TEST(LoadModelWithExperts, KeepsAllOfThemWhereTheyFit) {
  const RunnableModel all = LoadTiny("mixtral", 1, std::nullopt).value();
  const RunnableModel fits = LoadTiny("mixtral", 1, size_t{16} << 20).value();
  EXPECT_EQ(fits.transformer->expert_use().num_bytes, all.transformer->expert_use().num_bytes);
  EXPECT_EQ(fits.weight_digest, all.weight_digest);
}

TEST(LoadModelWithExperts, TakesEveryBoundFromOneExpertOnAndNoneBelow) {
  for (const int32_t num_ranks : {1, 2}) {
    const size_t all = ExpertBytesAtTheStart("mixtral", num_ranks, std::nullopt);
    const size_t one = all / 8;  // two layers of four
    EXPECT_FALSE(LoadTiny("mixtral", num_ranks, one - 1).ok());
    EXPECT_EQ(ExpertBytesAtTheStart("mixtral", num_ranks, one), 0);
    EXPECT_EQ(ExpertBytesAtTheStart("mixtral", num_ranks, all - 1), 0);
    EXPECT_EQ(ExpertBytesAtTheStart("mixtral", num_ranks, all), all);
  }
}

TEST(LoadModelWithExperts, ReportsProgressToItsEndWithABoundWithADigestAndWithout) {
  size_t totals[2] = {};
  for (const bool digests : {false, true}) {
    size_t last = 0;
    const LoadProgress progress = [&](size_t done, size_t num_bytes) {
      EXPECT_GT(done, last);
      last = done;
      totals[digests] = num_bytes;
    };
    const LoadOptions options = {.max_rows = 16,
                                 .context = {.max_context_tokens = 64, .num_blocks = 8},
                                 .digest_weights = digests,
                                 .max_expert_bytes = 100'000};
    ASSERT_TRUE(LoadModel(OpenTiny("gpt-oss", 1), options, progress).ok());
    EXPECT_EQ(last, totals[digests]);
  }
  EXPECT_LT(totals[false], totals[true]) << "without a digest experts are not read";
}

TEST(LoadModelWithExperts, RefusesABoundThatHoldsNoExpert) {
  const absl::Status status = LoadTiny("mixtral", 2, 1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("--expert_memory_mb: expected at least 1, which hold the model's largest expert, got 0"));
}

TEST(LoadModelWithExperts, RefusesABoundBelowAllOfThemWhereAllMustStay) {
  const auto load = [](std::optional<size_t> max_expert_bytes) {
    OpenedModel opened = OpenTiny("mixtral", 1);
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(
        std::make_unique<testing::ExpertKeepingBackend>(kernels::MakeBackend({.num_threads = 1}).backend));
    opened.ranks = parallel::RankGroup::Make("cpu", std::move(backends)).value();
    return LoadModel(
        std::move(opened),
        {.max_rows = 16, .context = {.max_context_tokens = 64, .num_blocks = 8}, .max_expert_bytes = max_expert_bytes},
        nullptr);
  };
  const size_t all = load(std::nullopt)->transformer->expert_use().num_bytes;
  EXPECT_EQ(load(all)->transformer->expert_use().num_bytes, all);
  const absl::Status status = load(all - 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("--expert_memory_mb: expected at least 1, which hold all experts, as this device must, got 0"));
}

// The plan packs experts before the model is loaded.
TEST(LoadModelWithExperts, NamesATensorThatIsMissingOrHasAnotherShapeWithABound) {
  OpenedModel opened = OpenTiny("qwen3-moe", 1);
  opened.config.experts.has_biases = true;
  const LoadOptions options = {
      .max_rows = 16, .context = {.max_context_tokens = 64, .num_blocks = 8}, .max_expert_bytes = size_t{1} << 20};
  const absl::Status missing = LoadModel(std::move(opened), options, nullptr).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  EXPECT_THAT(missing.message(), HasSubstr("bias"));

  OpenedModel narrow = OpenTiny("mixtral", 1);
  narrow.config.experts.intermediate_size /= 2;
  const absl::Status other_shape = LoadModel(std::move(narrow), options, nullptr).status();
  EXPECT_EQ(other_shape.code(), absl::StatusCode::kInvalidArgument) << other_shape;
  EXPECT_THAT(other_shape.message(), HasSubstr("experts.0"));
}

TEST(LoadModelWithExperts, ReadsOverABoundWhereThereAreNoExperts) { EXPECT_TRUE(LoadTiny("llama", 1, 1000).ok()); }

}  // namespace
}  // namespace foretoken::model
