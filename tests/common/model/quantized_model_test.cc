// SPDX-License-Identifier: Apache-2.0
// Models whose layers are stored quantised. If this test fails, such a model answers otherwise than its values demand,
// or its fingerprint does not say what is served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/model/checkpoint_fit.h"
#include "common/model/memory_need.h"
#include "common/model/model_weights.h"
#include "common/model/weight_digest.h"
#include "common/model/weight_names.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/quantized_layers.h"
#include "tests/testing/models/quantized_twins.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::model {
namespace {

using nlohmann::json;
using testing::QuantizedFormat;
using testing::QuantizedFormats;
using testing::RawTensors;
using testing::TempDir;
using Twins = testing::QuantizedTwins;

std::vector<testing::Row> LogitsOf(const std::string& directory, int num_ranks) {
  testing::LoadedModel model = testing::LoadModel(directory, {.num_ranks = num_ranks});
  const std::vector<int32_t> tokens = testing::RandomTokens(20, 320, 7);
  return testing::DecodeChain(model, {.tokens = tokens, .block_table = testing::Iota(0, 5), .chunks = {9, 1}});
}

class QuantizedModel : public ::testing::TestWithParam<QuantizedFormat> {};

// The twin's weights are rounded to bf16, by at most one part in 512, and the integers that a backend keeps are not.
// That moves logits by up to 1.4 % of the largest one here.
TEST_P(QuantizedModel, AnswersLikeItsValuesInBf16) {
  for (const bool is_mixed : {false, true}) {
    const Twins twins(GetParam(), is_mixed);
    for (const int num_ranks : {1, 2}) {
      const std::vector<testing::Row> quantized = LogitsOf(twins.quantized.path(), num_ranks);
      const std::vector<testing::Row> plain = LogitsOf(twins.plain.path(), num_ranks);
      ASSERT_EQ(quantized.size(), plain.size());
      float largest = 0, difference = 0;
      for (size_t row = 0; row < plain.size(); ++row) {
        ASSERT_EQ(quantized[row].size(), plain[row].size());
        for (size_t i = 0; i < plain[row].size(); ++i) {
          largest = std::max(largest, std::fabs(plain[row][i]));
          difference = std::max(difference, std::fabs(plain[row][i] - quantized[row][i]));
        }
      }
      EXPECT_LE(difference, 0.03f * largest) << num_ranks << " ranks";
      EXPECT_GT(largest, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedModel, ::testing::ValuesIn(QuantizedFormats()),
                         [](const auto& info) { return info.param.name; });

struct Loaded {
  std::string digest;
  ReadTimes times;
  size_t last_progress = 0;
};

Loaded Load(const std::string& directory, int num_ranks, int num_threads) {
  Loaded loaded;
  const ModelConfig config = LoadModelConfig(directory).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
  WeightDigest digest = WeightDigest::Make(config, checkpoint).value();
  WeightReader reader({.progress = [&](size_t done, size_t) { loaded.last_progress = done; }, .digest = &digest});
  const auto ranks = testing::MakeRanks({.num_threads = num_threads, .num_ranks = num_ranks});
  ranks->Run([&](int rank) {
    const Shard shard = {.rank = rank, .num_ranks = num_ranks};
    EXPECT_TRUE(LoadWeights(config, checkpoint, ranks->backend(rank), reader, shard).ok());
  });
  loaded.digest = digest.Finish();
  loaded.times = reader.times();
  return loaded;
}

size_t MatrixBytes(const ModelWeights& weights) {
  size_t num_bytes = weights.embed->num_bytes() + (weights.head == nullptr ? 0 : weights.head->num_bytes());
  for (const LayerWeights& layer : weights.layers) {
    for (const auto* weight : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) num_bytes += (*weight)->num_bytes();
  }
  return num_bytes;
}

// If it counts too much, a server refuses a model that fits; if too little, it runs out of memory.
TEST(QuantizedModels, NeedTheMemoryThatTheirIntegersTake) {
  int num_kept_formats = 0;
  for (const QuantizedFormat& format : QuantizedFormats()) {
    const Twins twins(format);
    const ModelConfig config = LoadModelConfig(twins.quantized.path()).value();
    const weights::Checkpoint checkpoint = weights::Checkpoint::Open(twins.quantized.path()).value();
    const auto ranks = testing::MakeRanks({.num_threads = 1});
    WeightReader reader({});
    const size_t taken = MatrixBytes(LoadWeights(config, checkpoint, ranks->backend(0), reader, {}).value());
    size_t vector_bytes = 0;
    for (const WeightName& name : ListWeights(NameWeights(config))) {
      if (name.shape.rank == 1) vector_bytes += name.shape.num_elements() * sizeof(float);
    }
    const KeptIntegers kept = FindKeptIntegers(config, checkpoint, ranks->backend(0), 1).value();
    const auto matrices = [&](const KeptIntegers& integers) {
      return LargestRankNeed(config, 1, {}, 1, ranks->backend(0), {.integers = integers}).weight_bytes - vector_bytes;
    };
    EXPECT_NEAR(static_cast<double>(matrices(kept)), static_cast<double>(taken), 0.01 * taken) << format.name;
    if (kept.empty()) continue;
    ++num_kept_formats;
    EXPECT_GT(matrices({}), taken) << format.name;
  }
  EXPECT_GE(num_kept_formats, 5);
}

TEST(QuantizedModels, CountAndDigestEveryStoredByteOnce) {
  for (const QuantizedFormat& format : QuantizedFormats()) {
    if (format.has_unread) continue;
    const Twins twins(format);
    const size_t num_bytes = weights::Checkpoint::Open(twins.quantized.path())->num_bytes();
    const Loaded one = Load(twins.quantized.path(), 1, 1);
    EXPECT_EQ(one.times.num_bytes, num_bytes) << format.name;
    EXPECT_EQ(one.last_progress, num_bytes);
    const Loaded two = Load(twins.quantized.path(), 2, 4);
    EXPECT_EQ(two.times.num_bytes, num_bytes) << format.name;
    EXPECT_EQ(two.digest, one.digest) << format.name;
    EXPECT_NE(one.digest, Load(twins.plain.path(), 1, 1).digest);
  }
}

TEST(QuantizedModels, HaveAnotherDigestIfTheDeclarationGivesTheBytesAnotherMeaning) {
  const Twins twins(QuantizedFormats()[8]);
  const std::string digest = Load(twins.quantized.path(), 1, 1).digest;
  json config = Twins::Config();
  config["quantization_config"] = QuantizedFormats()[8].config;
  config["quantization_config"]["checkpoint_format"] = "gptq_v2";
  twins.quantized.Write("config.json", config.dump());
  EXPECT_NE(Load(twins.quantized.path(), 1, 1).digest, digest);
}

TEST(QuantizedModels, AreReadWithTheDeclarationInAFileOfItsOwn) {
  const Twins twins(QuantizedFormats()[8]);
  const auto expected = LogitsOf(twins.quantized.path(), 1);
  twins.quantized.Write("config.json", Twins::Config().dump());
  twins.quantized.Write("quantize_config.json", R"({"bits": 4, "group_size": 32, "desc_act": false})");
  EXPECT_TRUE(LoadModelConfig(twins.quantized.path())->quantization.is_declared);
  EXPECT_TRUE(testing::SameBits(LogitsOf(twins.quantized.path(), 1), expected));
  twins.quantized.Write("quantize_config.json", R"({"bits": 3, "group_size": 32})");
  EXPECT_THAT(LoadModelConfig(twins.quantized.path()).status().message(),
              ::testing::HasSubstr("quantize_config.json: bits expects 4 or 8, got 3"));
}

TEST(QuantizedModels, AreReadWithTheDeclarationOfModelOptInAFileOfItsOwn) {
  const auto& formats = QuantizedFormats();
  const Twins twins(*std::ranges::find(formats, "modelopt_fp8", &QuantizedFormat::name));
  const auto expected = LogitsOf(twins.quantized.path(), 1);
  twins.quantized.Write("config.json", Twins::Config().dump());
  const auto declare = [&](const std::string& algorithm) {
    const json declared = {{"producer", {{"name", "modelopt"}}}, {"quantization", {{"quant_algo", algorithm}}}};
    twins.quantized.Write("hf_quant_config.json", declared.dump());
  };
  declare("FP8");
  EXPECT_TRUE(LoadModelConfig(twins.quantized.path())->quantization.is_declared);
  EXPECT_TRUE(testing::SameBits(LogitsOf(twins.quantized.path(), 1), expected));
  declare("NVFP4");
  EXPECT_THAT(LoadModelConfig(twins.quantized.path()).status().message(),
              ::testing::HasSubstr("hf_quant_config.json: quantization.quant_algo expects fp8"));
}

TEST(QuantizedModels, LeaveNoTensorUnreadButThoseOfActivations) {
  for (const QuantizedFormat& format : QuantizedFormats()) {
    const Twins twins(format);
    ModelConfig config = LoadModelConfig(twins.quantized.path()).value();
    const auto notes = FitToCheckpoint(weights::Checkpoint::Open(twins.quantized.path()).value(), config).value();
    EXPECT_EQ(notes.size(), format.has_unread ? 1u : 0u) << format.name;
    EXPECT_EQ(CountParameters(config), CountParameters(LoadModelConfig(twins.plain.path()).value()));
  }
}

TEST(QuantizedModels, HaveAHeadOfTheirOwnIfItIsStoredQuantised) {
  const Twins twins(QuantizedFormats()[0]);
  json config = Twins::Config();
  config["tie_word_embeddings"] = true;
  twins.quantized.Write("config.json", config.dump());
  ModelConfig read = LoadModelConfig(twins.quantized.path()).value();
  const auto notes = FitToCheckpoint(weights::Checkpoint::Open(twins.quantized.path()).value(), read).value();
  EXPECT_FALSE(read.tie_word_embeddings);
  EXPECT_THAT(notes, ::testing::ElementsAre(::testing::HasSubstr("they are not tied")));
}

}  // namespace
}  // namespace foretoken::model
