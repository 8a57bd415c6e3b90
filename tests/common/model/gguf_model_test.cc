// SPDX-License-Identifier: Apache-2.0
// Models in GGUF against the same models in safetensors. If this test fails, a GGUF file is served with other sizes,
// other weights or another order of rows than it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "common/base/json.h"
#include "common/model/checkpoint_fit.h"
#include "common/model/config/config.h"
#include "common/model/config/generation_config.h"
#include "common/model/model_weights.h"
#include "common/model/weight_digest.h"
#include "tests/reference/gguf.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/gguf_families.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::model {
namespace {

using ::testing::HasSubstr;
using testing::SourcePath;
using testing::TempDir;

std::vector<testing::Row> GgufLogits(const std::string& model, int num_ranks = 1) {
  testing::LoadedModel loaded = testing::LoadModel(model, {.num_ranks = num_ranks});
  const std::vector<int32_t> tokens = testing::RandomTokens(24, 300, 7);
  return testing::DecodeChain(loaded, {.tokens = tokens, .block_table = testing::Iota(0, 8), .chunks = {9, 1}});
}

// The configuration less the fields that a GGUF file does not have, or whose values it stores in another form.
ModelConfig Comparable(ModelConfig config) {
  config.dtype.reset();
  config.eos_token_ids.resize(1);
  config.norm_offset = 0;
  config.experts.names = ExpertNames::kGateUpDown;
  config.gating.is_interleaved = false;
  config.quantization = {};
  return config;
}

struct Twin {
  TempDir dir;
  std::string path;
  explicit Twin(const testing::GgufWriter& writer) : path(dir.Write("twin.gguf", writer.Bytes())) {}
};

class GgufModels : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufModels, HaveTheConfigurationAndTheLogitsOfTheirTwins) {
  const std::string directory = SourcePath(GetParam());
  for (const auto encode : {testing::InF32, testing::InBf16}) {
    const Twin twin(testing::GgufTwin(directory, {.encode = encode}));
    const absl::StatusOr<ModelConfig> config = LoadModelConfig(twin.path);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(Comparable(*config), Comparable(LoadModelConfig(directory).value()));
    for (const int num_ranks : {1, 2}) {
      if (config->num_kv_heads % num_ranks != 0) continue;
      EXPECT_TRUE(testing::SameBits(GgufLogits(twin.path, num_ranks), GgufLogits(directory, num_ranks)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GgufModels,
                         ::testing::Values("deploy/demo/target", "deploy/demo/draft", "tests/cases/models/llama",
                                           "tests/cases/models/llama-linear-bias", "tests/cases/models/qwen2",
                                           "tests/cases/models/qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

class GgufFamilies : public ::testing::TestWithParam<testing::GgufFamily> {};

TEST_P(GgufFamilies, HaveTheConfigurationAndTheLogitsOfTheirTwins) {
  const testing::GgufFamilyDirectory directory(GetParam());
  const Twin twin(testing::GgufTwin(directory.path()));
  ModelConfig config = LoadModelConfig(twin.path).value();
  if (GetParam().most_apart == 0) {
    EXPECT_EQ(Comparable(config), Comparable(LoadModelConfig(directory.path()).value()));
  }
  EXPECT_THAT(FitToCheckpoint(weights::Checkpoint::Open(twin.path).value(), config).value(), ::testing::IsEmpty());
  for (const int num_ranks : {1, 2}) {
    if (config.num_kv_heads % num_ranks != 0) continue;
    const std::vector<testing::Row> rows = GgufLogits(twin.path, num_ranks),
                                    expected = GgufLogits(directory.path(), num_ranks);
    if (GetParam().most_apart == 0) {
      EXPECT_TRUE(testing::SameBits(rows, expected));
      continue;
    }
    for (size_t row = 0; row < rows.size(); ++row) {
      EXPECT_THAT(rows[row], ::testing::Pointwise(::testing::FloatNear(GetParam().most_apart), expected[row]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GgufFamilies, ::testing::ValuesIn(testing::GgufFamilies()), [](const auto& info) {
  std::string name = info.param.model;
  std::ranges::replace(name, '-', '_');
  return name;
});

std::string Case(const char* model) { return SourcePath(std::string("tests/cases/models/") + model); }

TEST(GgufModel, WithGateAndUpOfExpertsAsOneHasTheLogitsOfItsTwin) {
  for (const char* model : {"mixtral", "qwen3-moe", "glm4-moe"}) {
    const Twin twin(testing::GgufTwin(Case(model), {.fuses_experts = true}));
    ModelConfig config = LoadModelConfig(twin.path).value();
    EXPECT_THAT(FitToCheckpoint(weights::Checkpoint::Open(twin.path).value(), config).value(), ::testing::IsEmpty());
    EXPECT_EQ(config.experts.names, ExpertNames::kFused);
    for (const int num_ranks : {1, 2}) {
      EXPECT_TRUE(testing::SameBits(GgufLogits(twin.path, num_ranks), GgufLogits(Case(model), num_ranks)));
    }
  }
  // Its biases have no such form.
  const Twin gpt_oss(testing::GgufTwin(Case("gpt-oss"), {.fuses_experts = true}));
  EXPECT_THAT(LoadModelConfig(gpt_oss.path).status().ToString(), HasSubstr("tensor blk.0.ffn_gate_up_exps.weight"));
}

TEST(GgufModel, LeavesOutLayersForMultiTokenPrediction) {
  const TempDir dir;
  dir.CopyFrom(Case("glm4-moe"));
  nlohmann::json json = base::ReadJson(dir.path() + "/config.json").value();
  json["num_nextn_predict_layers"] = 1;
  dir.Write("config.json", json.dump());
  testing::GgufWriter writer = testing::GgufTwin(dir.path());
  writer.AddTensor({.name = "blk.3.nextn.eh_proj.weight", .shape = {1, 2}, .bytes = std::string(8, '1')});
  const Twin twin(writer);
  ModelConfig config = LoadModelConfig(twin.path).value();
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_THAT(FitToCheckpoint(weights::Checkpoint::Open(twin.path).value(), config).value(), ::testing::IsEmpty());
  EXPECT_TRUE(testing::SameBits(GgufLogits(twin.path), GgufLogits(Case("glm4-moe"))));
}

// Gemma's largest models have another scale of scores than their heads tell.
TEST(GgufModel, OfGemmasLargestKindHasTheScaleOfItsWidth) {
  for (const auto& [model, num_layers] : {std::pair("gemma2", 46), {"gemma3", 62}}) {
    testing::GgufWriter writer = testing::GgufTwin(Case(model));
    const Twin small(writer);
    EXPECT_DOUBLE_EQ(*LoadModelConfig(small.path)->attention_scale, 1 / std::sqrt(32.0));
    const TempDir dir;
    dir.CopyFrom(Case(model));
    nlohmann::json json = base::ReadJson(dir.path() + "/config.json").value();
    json["num_hidden_layers"] = num_layers;
    json.erase("layer_types");
    const Twin large(testing::GgufKeys(json));
    EXPECT_DOUBLE_EQ(*LoadModelConfig(large.path)->attention_scale, 1 / std::sqrt(64.0 / 4));
  }
}

// The values of InRandomBlocks as floats.
testing::EncodedMatrix ValuesOfRandomBlocks(const reference::GgufType& type, const std::string& name,
                                            size_t num_values) {
  const std::string bytes = testing::InRandomBlocks(type, name, num_values).bytes;
  const auto* blocks = reinterpret_cast<const uint8_t*>(bytes.data());
  std::vector<float> values;
  for (size_t i = 0; i < num_values; ++i) {
    const uint8_t* block = blocks + i / type.block_values * type.block_bytes;
    values.push_back(reference::GgufValue(type.name, block, static_cast<int64_t>(i) % type.block_values));
  }
  return testing::InF32(name, values);
}

// Whether a model in random blocks answers like one of the blocks' values.
void ExpectAnswersLikeItsValues(const std::string& directory, const reference::GgufType& type) {
  const auto encoder = [&](auto encode) {
    return [&type, encode](const std::string& name, const std::vector<float>& values) {
      return name.find("embed") != std::string::npos ? testing::InBf16(name, values)
                                                     : encode(type, name, values.size());
    };
  };
  const Twin blocks(testing::GgufTwin(directory, {.encode = encoder(testing::InRandomBlocks)}));
  const Twin floats(testing::GgufTwin(directory, {.encode = encoder(ValuesOfRandomBlocks)}));
  for (const int num_ranks : {1, 2}) {
    const std::vector<testing::Row> rows = GgufLogits(blocks.path, num_ranks),
                                    expected = GgufLogits(floats.path, num_ranks);
    float largest = 0, difference = 0;
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t i = 0; i < rows[row].size(); ++i) {
        largest = std::max(largest, std::fabs(expected[row][i]));
        difference = std::max(difference, std::fabs(expected[row][i] - rows[row][i]));
      }
    }
    EXPECT_GT(largest, 0);
    EXPECT_LE(difference, 0.05f * largest);
  }
}

class GgufTypesOfModels : public ::testing::TestWithParam<reference::GgufType> {};

// The twin's values are rounded to bf16, by at most one part in 512. Integers that stay integers are not, so logits
// differ by some per cent of the largest.
TEST_P(GgufTypesOfModels, AnswerLikeTheirValues) {
  ExpectAnswersLikeItsValues(SourcePath("deploy/demo/target"), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Types, GgufTypesOfModels, ::testing::ValuesIn(reference::GgufTypes()),
                         [](const auto& info) { return info.param.name; });

TEST(GgufModel, WithExpertsInBlocksAnswersLikeItsValues) {
  for (const reference::GgufType& type : reference::GgufTypes()) {
    if (type.name == "Q4_0" || type.name == "Q8_0" || type.name == "MXFP4") {
      ExpectAnswersLikeItsValues(Case("qwen3-moe"), type);
      ExpectAnswersLikeItsValues(Case("gpt-oss"), type);
    }
  }
}

TEST(GgufModel, OfMixedTypesKeepsIntegersEverywhere) {
  const Twin twin(testing::GgufTwin(SourcePath("deploy/demo/target"), {.encode = testing::InTypesOfQ4KM}));
  const ModelConfig config = LoadModelConfig(twin.path).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(twin.path).value();
  const auto ranks = testing::MakeRanks({});
  WeightReader reader({});
  const ModelWeights weights = LoadWeights(config, checkpoint, ranks->backend(0), reader, {}).value();
  const auto bits = [](const std::unique_ptr<kernels::Weight>& weight) {
    return 8.0 * static_cast<double>(weight->num_bytes()) /
           static_cast<double>(weight->out_features() * weight->in_features());
  };
  // Two F16 for 256 values, and for each group a factor of 8 bits, or two.
  constexpr double kFour = 4 + 32.0 / 256 + 2 * 8.0 / 32, kSix = 6 + 32.0 / 256 + 8.0 / 16;
  EXPECT_EQ(bits(weights.embed), kSix);
  for (const LayerWeights& layer : weights.layers) {
    const double share_of_v = static_cast<double>(config.num_kv_heads) / (config.num_heads + 2 * config.num_kv_heads);
    EXPECT_EQ(bits(layer.qkv), kFour * (1 - share_of_v) + kSix * share_of_v);
    EXPECT_EQ(bits(layer.o), kFour);
    EXPECT_EQ(bits(layer.gate_up), kFour);
    EXPECT_EQ(bits(layer.down), kSix);
  }
  EXPECT_EQ(GgufLogits(twin.path, 2).size(), 24u);
}

TEST(GgufModel, InF16HasTheLogitsOfItsTwin) {
  const std::string directory = SourcePath("tests/cases/models/llama-yarn");  // stored as F16
  const Twin twin(testing::GgufTwin(directory, {.encode = testing::InF16}));
  EXPECT_EQ(Comparable(LoadModelConfig(twin.path).value()), Comparable(LoadModelConfig(directory).value()));
  EXPECT_TRUE(testing::SameBits(GgufLogits(twin.path), GgufLogits(directory)));
}

// The file has the divisors of the frequencies in single precision, not the numbers that they come from.
TEST(GgufModel, WithOtherFrequenciesThanLlama3sIsNearItsTwin) {
  const std::string directory = SourcePath("tests/cases/models/llama-llama3-tied");
  const Twin twin(testing::GgufTwin(directory));
  const ModelConfig config = LoadModelConfig(twin.path).value();
  EXPECT_TRUE(std::holds_alternative<DivisorScaling>(config.rope.scaling));
  EXPECT_TRUE(config.tie_word_embeddings);
  const std::vector<testing::Row> rows = GgufLogits(twin.path), expected = GgufLogits(directory);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < rows[row].size(); ++i) EXPECT_NEAR(rows[row][i], expected[row][i], 1e-2) << row;
  }
}

// The two forms of a published model must have equal frequencies, so the four numbers are found again.
TEST(GgufModel, WithLlama3sFrequenciesHasTheNumbersBehindThem) {
  const TempDir dir;
  dir.CopyFrom(SourcePath("tests/cases/models/llama"));
  for (const double factor : {8.0, 32.0}) {
    nlohmann::json config = base::ReadJson(dir.path() + "/config.json").value();
    config["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 500000.0},
                                 {"factor", factor},        {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
    dir.Write("config.json", config.dump());
    const Twin twin(testing::GgufTwin(dir.path()));
    EXPECT_EQ(LoadModelConfig(twin.path)->rope, LoadModelConfig(dir.path())->rope);
  }
}

TEST(GgufModel, InPartsIsTheWhole) {
  const std::string directory = SourcePath("tests/cases/models/llama");
  const testing::GgufWriter whole = testing::GgufTwin(directory);
  const Twin twin(whole);
  const std::vector<testing::GgufWriter> parts = whole.Split(3);
  const TempDir dir;
  std::vector<std::string> paths;
  for (const testing::GgufWriter& part : parts) {
    paths.push_back(dir.Write("m-0000" + std::to_string(paths.size() + 1) + "-of-00003.gguf", part.Bytes()));
  }
  for (const std::string& path : paths) {
    EXPECT_EQ(LoadModelConfig(path).value(), LoadModelConfig(twin.path).value());
    EXPECT_TRUE(testing::SameBits(GgufLogits(path), GgufLogits(twin.path)));
  }
  EXPECT_THAT(LoadModelConfig(dir.Write("other.gguf", parts[0].Bytes())).status().ToString(),
              HasSubstr("split.count: expected a file named NAME-00001-of-00003.gguf"));
  dir.Write("m-00002-of-00003.gguf", parts[0].Bytes());
  EXPECT_THAT(LoadModelConfig(paths[0]).status().ToString(), HasSubstr("split.no: expected 1 by the file's name"));
  std::filesystem::remove(paths[1]);
  EXPECT_THAT(LoadModelConfig(paths[0]).status().ToString(), HasSubstr("m-00002-of-00003.gguf"));
}

TEST(GgufModel, HasADigestOfItsBytesAndOfTheirMeaning) {
  const std::string directory = SourcePath("tests/cases/models/llama");
  const auto digest_of = [](const std::string& model) {
    const ModelConfig config = LoadModelConfig(model).value();
    const weights::Checkpoint checkpoint = weights::Checkpoint::Open(model).value();
    WeightDigest digest = WeightDigest::Make(config, checkpoint).value();
    WeightReader reader({.digest = &digest});
    const auto ranks = testing::MakeRanks({});
    EXPECT_TRUE(LoadWeights(config, checkpoint, ranks->backend(0), reader).ok());
    return digest.Finish();
  };
  const std::string bytes = testing::GgufTwin(directory, {.encode = testing::InBf16}).Bytes();
  const TempDir dir;
  const std::string path = dir.Write("twin.gguf", bytes);
  const std::string digest = digest_of(path);
  EXPECT_EQ(digest, digest_of(path));
  EXPECT_NE(digest, digest_of(directory));
  std::string changed = bytes;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  EXPECT_NE(digest, digest_of(dir.Write("changed.gguf", changed)));
}

TEST(GgufModel, DefaultsOfSamplingAndAllEndsAreRead) {
  testing::GgufWriter writer = testing::GgufTwin(SourcePath("tests/cases/models/llama"));
  writer.Add("tokenizer.ggml.eot_token_id", uint32_t{7});
  writer.Add("tokenizer.ggml.eom_token_id", uint32_t{2});
  writer.Add("general.sampling.temp", 0.6f);
  writer.Add("general.sampling.top_k", int32_t{20});
  const Twin twin(writer);
  const GenerationConfig config = LoadGenerationConfig(twin.path).value();
  EXPECT_THAT(config.eos_token_ids, ::testing::ElementsAre(2, 7));
  EXPECT_EQ(config.temperature, 0.6f);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, std::nullopt);
}

TEST(GgufModel, LeavesNoTensorUnread) {
  const Twin twin(testing::GgufTwin(SourcePath("tests/cases/models/llama-llama3-tied")));
  ModelConfig config = LoadModelConfig(twin.path).value();
  EXPECT_THAT(FitToCheckpoint(weights::Checkpoint::Open(twin.path).value(), config).value(), ::testing::IsEmpty());
}

struct Refusal {
  const char* name;
  void (*change)(testing::GgufWriter& writer);
  const char* message;
  const char* model = "llama";
};

class GgufRefusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(GgufRefusals, NameTheKey) {
  testing::GgufWriter writer = testing::GgufTwin(Case(GetParam().model));
  GetParam().change(writer);
  const Twin twin(writer);
  const absl::Status status = LoadModelConfig(twin.path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr("twin.gguf"), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufRefusals,
    ::testing::Values(
        Refusal{"Experts", [](auto& w) { w.Add("llama.expert_count", uint32_t{8}); },
                "tensor blk.0.ffn_down.weight: a model of architecture llama does not read it"},
        Refusal{"ExpertsOfADenseArchitecture", [](auto& w) { w.Add("qwen2.expert_count", uint32_t{8}); },
                "qwen2.expert_count: is not supported: expected 0, got 8", "qwen2"},
        Refusal{"BothKindsOfDivisors",
                [](auto& w) {
                  for (const char* name : {"rope_freqs.weight", "rope_factors_long.weight"}) {
                    w.AddTensor({.name = name, .shape = {8}, .bytes = std::string(32, '1')});
                  }
                },
                "tensor rope_freqs.weight: expected none beside rope_factors_short.weight"},
        Refusal{"Window", [](auto& w) { w.Add("llama.attention.sliding_window", uint32_t{128}); },
                "llama.attention.sliding_window: is not supported"},
        Refusal{"Cap", [](auto& w) { w.Add("llama.final_logit_softcapping", 30.f); }, "llama.final_logit_softcapping"},
        Refusal{"Kind", [](auto& w) { w.Add("general.type", std::string("adapter")); },
                "general.type: expected model, got adapter"},
        Refusal{"OldBlocks", [](auto& w) { w.Add("general.quantization_version", uint32_t{1}); },
                "general.quantization_version: expected 2, got 1"},
        Refusal{"PartialRotation", [](auto& w) { w.Add("llama.rope.dimension_count", uint32_t{8}); },
                "llama.rope.dimension_count: expected 16"},
        Refusal{"Scaling", [](auto& w) { w.Add("llama.rope.scaling.type", std::string("longrope")); },
                "llama.rope.scaling.type: expected none, linear or yarn, got longrope"},
        Refusal{"AttentionFactor", [](auto& w) { w.Add("llama.rope.scaling.attn_factor", 2.f); },
                "llama.rope.scaling.attn_factor: is not supported without tensor rope_factors_long.weight"},
        Refusal{"OneListOfDivisors",
                [](auto& w) {
                  w.AddTensor({.name = "rope_factors_short.weight", .shape = {8}, .bytes = std::string(32, '1')});
                },
                "tensor rope_factors_long.weight: is missing"},
        Refusal{"WindowPattern", [](auto& w) { w.Add("llama.attention.sliding_window_pattern", uint32_t{6}); },
                "llama.attention.sliding_window_pattern: is not supported"},
        Refusal{"NoFactor", [](auto& w) { w.Add("llama.rope.scaling.type", std::string("yarn")); },
                "llama.rope.scaling.factor: is missing"},
        Refusal{"ForeignTensor",
                [](auto& w) { w.AddTensor({.name = "blk.0.ffn_up.scale", .shape = {1}, .bytes = "1234"}); },
                "tensor blk.0.ffn_up.scale: a model of architecture llama does not read it"},
        Refusal{"NormsOfHeads",
                [](auto& w) { w.AddTensor({.name = "blk.0.attn_q_norm.weight", .shape = {1}, .bytes = "1234"}); },
                "tensor blk.0.attn_q_norm.weight"},
        Refusal{"Weighting", [](auto& w) { w.Add("qwen3moe.expert_gating_func", uint32_t{2}); },
                "qwen3moe.expert_gating_func: expected 1, got 2", "qwen3-moe"},
        Refusal{"SharedExpert", [](auto& w) { w.Add("qwen3moe.expert_shared_count", uint32_t{1}); },
                "qwen3moe.expert_shared_count: is not supported: expected 0, got 1", "qwen3-moe"},
        Refusal{"Groups", [](auto& w) { w.Add("qwen3moe.expert_group_count", uint32_t{4}); },
                "qwen3moe.expert_group_count: is not supported", "qwen3-moe"},
        Refusal{"TurnedDimensions", [](auto& w) { w.Add("phi3.rope.dimension_count", uint32_t{7}); },
                "phi3.rope.dimension_count: expected an even number from 2 to 16, got 7", "phi3"},
        Refusal{"PredictionLayers", [](auto& w) { w.Add("glm4moe.nextn_predict_layers", uint32_t{9}); },
                "glm4moe.nextn_predict_layers: expected a number from 0 to 2, the block_count, got 9",
                "glm4-moe-plain"},
        Refusal{"WindowOfDense", [](auto& w) { w.Add("olmo2.attention.sliding_window", uint32_t{9}); },
                "olmo2.attention.sliding_window: is not supported", "olmo2"},
        Refusal{"TypeOfTensor",
                [](auto& w) {
                  w.AddTensor({.name = "blk.1.x", .type = 10, .shape = {256}, .bytes = std::string(84, 'x')});
                },
                "tensor blk.1.x: expected type F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, "
                "MXFP4, got Q2_K (number 10)"}),
    [](const auto& info) { return info.param.name; });

TEST(GgufModel, WithoutANumberOfExpertsIsRefused) {
  nlohmann::json json = base::ReadJson(Case("qwen3-moe") + "/config.json").value();
  json.erase("num_local_experts");
  const Twin twin(testing::GgufKeys(json));
  EXPECT_THAT(LoadModelConfig(twin.path).status().ToString(), HasSubstr("qwen3moe.expert_count: is missing"));
}

TEST(GgufModel, OfAnotherArchitectureIsRefused) {
  testing::GgufWriter writer;
  writer.Add("general.architecture", std::string("mamba"));
  const Twin twin(writer);
  EXPECT_THAT(LoadModelConfig(twin.path).status().ToString(),
              HasSubstr("general.architecture: expected one of llama, qwen2, qwen3, qwen3moe, gemma2, gemma3, phi3, "
                        "granite, smollm3, olmo2, glm4moe, gpt-oss, got mamba"));
}

}  // namespace
}  // namespace foretoken::model
