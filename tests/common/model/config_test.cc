// SPDX-License-Identifier: Apache-2.0
// Reading config.json. If this test fails, a model is served with wrong sizes or a wrong rotary scaling, or a model
// that is not supported is not refused.
#include "common/model/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mapped_file.h"
#include "common/model/weight_names.h"
#include "common/quantization/find_weight.h"
#include "common/weights/checkpoint.h"
#include "nlohmann/json.hpp"
#include "tests/testing/models/tiny_models.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::model {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::SourcePath;
using testing::TempDir;
using Ids = std::vector<int64_t>;
using Windows = std::vector<std::optional<int64_t>>;

// A valid configuration with the fields of `patch` replaced; null removes a field, as in RFC 7396.
std::string Patched(const std::string& patch) {
  json config = json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "bfloat16"})");
  config.merge_patch(json::parse(patch));
  return config.dump();
}

absl::StatusOr<ModelConfig> Parse(const std::string& text) { return ParseModelConfig(text, "config.json"); }

constexpr const char* kMistral = R"("architectures":["MistralForCausalLM"],"model_type":"mistral")";
constexpr const char* kQwen2 = R"("architectures":["Qwen2ForCausalLM"],"model_type":"qwen2")";
constexpr const char* kGemma2 = R"("architectures":["Gemma2ForCausalLM"],"model_type":"gemma2")";
constexpr const char* kGemma3 = R"("architectures":["Gemma3ForCausalLM"],"model_type":"gemma3_text")";
constexpr const char* kGranite = R"("architectures":["GraniteForCausalLM"],"model_type":"granite")";
constexpr const char* kMixtral =
    R"("architectures":["MixtralForCausalLM"],"model_type":"mixtral","num_local_experts":4)";
constexpr const char* kQwen3Moe = R"("architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe",
                                    "num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32)";
constexpr const char* kGlm4Moe = R"("architectures":["Glm4MoeForCausalLM"],"model_type":"glm4_moe",
                                   "n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32)";
constexpr const char* kGptOss = R"("architectures":["GptOssForCausalLM"],"model_type":"gpt_oss",
    "num_local_experts":4,"num_experts_per_tok":2,
    "rope_scaling":{"rope_type":"yarn","factor":4,"truncate":false,"original_max_position_embeddings":64})";
constexpr const char* kPhi3 = R"("architectures":["Phi3ForCausalLM"],"model_type":"phi3","eos_token_id":2)";
constexpr const char* kSmolLm3 =
    R"("architectures":["SmolLM3ForCausalLM"],"model_type":"smollm3","bos_token_id":1,"eos_token_id":2)";
constexpr const char* kOlmo2 = R"("architectures":["Olmo2ForCausalLM"],"model_type":"olmo2","eos_token_id":2)";
constexpr const char* kQwen3 = R"("architectures":["Qwen3ForCausalLM"],"model_type":"qwen3")";

std::string With(const char* architecture, const std::string& fields) {
  return Patched("{" + std::string(architecture) + (fields.empty() ? "" : ",") + fields + "}");
}

ModelConfig ParseOrDie(const std::string& text) {
  const absl::StatusOr<ModelConfig> config = Parse(text);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig());
}

TEST(ModelConfig, ReadsLlama) {
  const ModelConfig config = ParseOrDie(Patched("{}"));
  EXPECT_EQ(config.architecture, Architecture::kLlama);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 96);
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.vocab_size, 300);
  EXPECT_EQ(config.max_position_embeddings, 256);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope, RopeConfig{});
  EXPECT_FALSE(config.tie_word_embeddings || config.attention_bias || config.attention_output_bias || config.qk_norm);
  EXPECT_EQ(config.sliding_windows, Windows(3));
  EXPECT_EQ(config.bos_token_ids, Ids{1});
  EXPECT_EQ(config.eos_token_ids, Ids{2});
  EXPECT_EQ(config.dtype, "bfloat16");
}

TEST(ModelConfig, ReadsTheDemoModel) {
  const auto config = LoadModelConfig(SourcePath("deploy/demo/target"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_layers, 8);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->bos_token_ids, Ids{});
  EXPECT_EQ(config->eos_token_ids, Ids{4092});
}

TEST(ModelConfig, NamesTheMissingFile) {
  const TempDir dir;
  const absl::Status status = LoadModelConfig(dir.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.ToString(), HasSubstr(dir.path() + "/config.json"));
}

class TinyModel : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string directory_ = SourcePath("tests/cases/models/") + GetParam();
};

TEST_P(TinyModel, HoldsEveryTensorItsConfigNames) {
  const auto config = LoadModelConfig(directory_);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto checkpoint = weights::Checkpoint::Open(directory_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  size_t num_bytes = 0;
  for (const WeightName& weight : ListWeights(NameWeights(*config))) {
    const auto found = quantization::FindWeight(*checkpoint, weight.name, weight.shape, config->quantization);
    ASSERT_TRUE(found.ok()) << found.status();
    num_bytes += found->num_bytes();
  }
  EXPECT_EQ(num_bytes, checkpoint->num_bytes()) << "the checkpoint holds tensors that no role names";
}

TEST_P(TinyModel, OldAndNewSpellingMeanTheSame) {
  const auto written_by_5 = LoadModelConfig(directory_);
  const std::string old_path = directory_ + "/config_transformers4.json";
  const auto written_by_4 = ParseModelConfig(base::ReadFile(old_path).value(), old_path);
  ASSERT_TRUE(written_by_5.ok() && written_by_4.ok()) << written_by_5.status() << written_by_4.status();
  EXPECT_EQ(*written_by_5, *written_by_4);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, TinyModel, ::testing::ValuesIn(testing::kTinyModels), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(ModelConfig, ReadsWhichLayersHaveExperts) {
  const ModelConfig all = ParseOrDie(With(kQwen3Moe, ""));
  EXPECT_EQ(all.experts.layers, std::vector<bool>(3, true));
  EXPECT_EQ(all.experts.weighting, kernels::ExpertWeighting::kSoftmaxOverAll);
  const ModelConfig some = ParseOrDie(With(kQwen3Moe, R"("mlp_only_layers":[2],"norm_topk_prob":true)"));
  EXPECT_EQ(some.experts.layers, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(some.experts.weighting, kernels::ExpertWeighting::kSoftmaxOverChosen);
  EXPECT_EQ(ParseOrDie(With(kQwen3Moe, R"("decoder_sparse_step":2)")).experts.layers,
            (std::vector<bool>{false, true, false}));
  EXPECT_EQ(ParseOrDie(With(kMixtral, R"("num_experts_per_tok":2)")).experts.intermediate_size, 96);
}

TEST(ModelConfig, GptOssHasItsGateItsBiasesAndAWindowInEveryOtherLayer) {
  const ModelConfig config = ParseOrDie(With(kGptOss, ""));
  EXPECT_EQ(config.gating,
            (kernels::Gating{
                .activation = kernels::Activation::kGeluQuick, .limit = 7.0f, .up_offset = 1, .is_interleaved = true}));
  EXPECT_TRUE(config.attention_bias && config.attention_output_bias && config.attention_sinks);
  EXPECT_TRUE(config.experts.has_biases && config.quantization.has_transposed_experts);
  EXPECT_EQ(config.experts.intermediate_size, 96);
  EXPECT_EQ(config.sliding_windows, (std::vector<std::optional<int64_t>>{std::optional<int64_t>(128), std::nullopt,
                                                                         std::optional<int64_t>(128)}));
  EXPECT_EQ(config.max_position_embeddings, 256);
  EXPECT_FALSE(ParseOrDie(With(kGptOss, R"("attention_bias":false)")).attention_bias);
  const std::string old_name = With(kGptOss, R"("num_experts_per_tok":null,"experts_per_token":3)");
  EXPECT_EQ(ParseOrDie(old_name).experts.num_chosen, 3);
}

TEST(ModelConfig, TakesTheArchitectureFromEitherName) {
  EXPECT_EQ(ParseOrDie(With(kQwen3, R"("model_type":null)")).architecture, Architecture::kQwen3);
  EXPECT_EQ(ParseOrDie(With(kQwen2, R"("architectures":null)")).architecture, Architecture::kQwen2);
}

TEST(ModelConfig, EveryHeadHasItsOwnKeysInAnOldLlamaWithoutTheField) {
  EXPECT_EQ(ParseOrDie(Patched(R"({"num_key_value_heads":null})")).num_kv_heads, 4);
}

TEST(ModelConfig, HeadDimMayDifferFromHiddenSizeOverHeads) {
  EXPECT_EQ(ParseOrDie(Patched(R"({"head_dim":32})")).head_dim, 32);
  EXPECT_EQ(ParseOrDie(With(kQwen3, "")).head_dim, 128);
}

TEST(ModelConfig, BiasesFollowTheArchitecture) {
  const auto biases = [](const std::string& text) {
    const ModelConfig config = ParseOrDie(text);
    return std::pair(config.attention_bias, config.attention_output_bias);
  };
  EXPECT_EQ(biases(Patched(R"({"attention_bias":true})")), std::pair(true, true));
  EXPECT_EQ(biases(With(kMistral, "")), std::pair(false, false));
  EXPECT_EQ(biases(With(kQwen2, "")), std::pair(true, false));
  EXPECT_EQ(biases(With(kQwen3, "")), std::pair(false, false));
  EXPECT_EQ(biases(With(kQwen3, R"("attention_bias":true)")), std::pair(true, true));
}

TEST(ModelConfig, OnlyQwen3NormalisesHeads) {
  EXPECT_TRUE(ParseOrDie(With(kQwen3, "")).qk_norm);
  EXPECT_FALSE(ParseOrDie(With(kQwen2, "")).qk_norm);
}

TEST(ModelConfig, Olmo2HasNormsOfWhatIsAddedAndOfTheWholeQAndK) {
  const ModelConfig olmo2 = ParseOrDie(With(kOlmo2, ""));
  EXPECT_TRUE(olmo2.post_norms && olmo2.qk_norm && olmo2.whole_qk_norm);
  EXPECT_FALSE(olmo2.pre_norms);
  const ModelWeightNames names = NameWeights(olmo2);
  EXPECT_FALSE(names.layers[0].input_norm || names.layers[0].mlp_norm);
  EXPECT_EQ(names.layers[0].q_norm->shape, kernels::Shape(4 * 16));
  EXPECT_EQ(names.layers[0].k_norm->shape, kernels::Shape(2 * 16));
  EXPECT_FALSE(ParseOrDie(With(kQwen3, "")).whole_qk_norm);
}

TEST(ModelConfig, AFieldMayDeclareWhatItsFamilyAlwaysHas) {
  const std::string coder =
      With(kQwen3Moe, R"("use_qk_norm":true,"qkv_bias":false,"shared_expert_intermediate_size":0)");
  EXPECT_TRUE(ParseOrDie(coder).qk_norm);
  EXPECT_TRUE(ParseOrDie(With(kQwen2, R"("qkv_bias":true)")).attention_bias);
}

TEST(ModelConfig, ATextPartMayDeclareItsQuantisation) {
  const auto wrapped = [](const char* quantization) {
    json text = json::parse(With(kQwen3, ""));
    text["quantization_config"] = json::parse(quantization);
    return json{{"model_type", "some_vl"}, {"text_config", text}}.dump();
  };
  const ModelConfig config =
      ParseOrDie(wrapped(R"({"quant_method":"gptq","bits":4,"group_size":32,"checkpoint_format":"gptq_v2"})"));
  EXPECT_TRUE(config.quantization.is_declared && config.quantization.is_gptq_v2);
  EXPECT_THAT(Parse(wrapped(R"({"quant_method":"bitsandbytes"})")).status().message(), HasSubstr("bitsandbytes"));
}

TEST(ModelConfig, AHeadMayBeTiedBesideTheTextPart) {
  const auto is_tied = [](std::optional<bool> inside, std::optional<bool> outside) {
    json whole = {{"model_type", "some_vl"}, {"text_config", json::parse(With(kQwen3, ""))}};
    if (inside) whole["text_config"]["tie_word_embeddings"] = *inside;
    if (outside) whole["tie_word_embeddings"] = *outside;
    return ParseOrDie(whole.dump()).tie_word_embeddings;
  };
  EXPECT_FALSE(is_tied(std::nullopt, std::nullopt));
  EXPECT_TRUE(is_tied(std::nullopt, true));
  EXPECT_TRUE(is_tied(true, false));
  EXPECT_FALSE(is_tied(false, true));
}

TEST(ModelConfig, AWindowThatIsNotUsedIsNoneInFamiliesWithoutWindows) {
  const char* unused = R"("sliding_window":20,"use_sliding_window":false)";
  EXPECT_EQ(ParseOrDie(With(kQwen3Moe, unused)).sliding_windows, Windows(3));
  EXPECT_EQ(ParseOrDie(With(kSmolLm3, unused)).sliding_windows, Windows(3));
}

TEST(ModelConfig, MistralHasOneWindowForAllLayers) {
  EXPECT_EQ(ParseOrDie(With(kMistral, R"("sliding_window":20)")).sliding_windows, Windows(3, 20));
  EXPECT_EQ(ParseOrDie(With(kMistral, "")).sliding_windows, Windows(3, 4096));
  std::string with_null = With(kMistral, R"("sliding_window":20)");
  with_null.replace(with_null.find("\"sliding_window\":20"), 19, "\"sliding_window\":null");
  EXPECT_EQ(ParseOrDie(with_null).sliding_windows, Windows(3));
}

TEST(ModelConfig, QwenHasWindowsFromMaxWindowLayersOn) {
  EXPECT_EQ(ParseOrDie(With(kQwen2, R"("sliding_window":20)")).sliding_windows, Windows(3));
  const char* used = R"("sliding_window":20,"use_sliding_window":true,"max_window_layers":1)";
  EXPECT_EQ(ParseOrDie(With(kQwen2, used)).sliding_windows, (Windows{std::nullopt, 20, 20}));
  EXPECT_EQ(ParseOrDie(With(kQwen3, used)).sliding_windows, (Windows{std::nullopt, 20, 20}));
  EXPECT_EQ(ParseOrDie(With(kQwen2, R"("sliding_window":20,"use_sliding_window":true)")).sliding_windows, Windows(3));
}

TEST(ModelConfig, QwenLayerTypesOverrideMaxWindowLayers) {
  const char* fields = R"("sliding_window":20,"use_sliding_window":true,"max_window_layers":0,
                          "layer_types":["sliding_attention","full_attention","sliding_attention"])";
  EXPECT_EQ(ParseOrDie(With(kQwen3, fields)).sliding_windows, (Windows{20, std::nullopt, 20}));
}

TEST(ModelConfig, EosMayBeAListOrAbsent) {
  EXPECT_EQ(ParseOrDie(Patched(R"({"eos_token_id":[7,9]})")).eos_token_ids, (Ids{7, 9}));
  EXPECT_EQ(ParseOrDie(With(kQwen2, "")).eos_token_ids, Ids{});
}

TEST(ModelConfig, NeutralValuesOfForeignFieldsAreAccepted) {
  EXPECT_TRUE(Parse(Patched(R"({"mlp_bias":false,"partial_rotary_factor":1,"residual_multiplier":1.0,
      "pretraining_tp":2,"attention_dropout":0.1,"hidden_act":"silu","rope_scaling":{}})"))
                  .ok());
}

TEST(RopeConfig, AnAbsentThetaIsThatOfTheFamily) {
  EXPECT_EQ(ParseOrDie(Patched(R"({"rope_theta":null})")).rope.theta, 1e4);
  EXPECT_EQ(ParseOrDie(With(kMixtral, R"("num_experts_per_tok":2,"rope_theta":null)")).rope.theta, 1e6);
  EXPECT_EQ(ParseOrDie(With(kSmolLm3, R"("rope_theta":null)")).rope.theta, 2e6);
}

TEST(RopeConfig, EqualSettingsPerLayerTypeAreOne) {
  const char* nested = R"({"rope_theta":null,"rope_parameters":{
      "full_attention":{"rope_type":"linear","factor":2.0,"rope_theta":5e5},
      "sliding_attention":{"rope_type":"linear","factor":2.0,"rope_theta":5e5}}})";
  const RopeConfig expected{.theta = 5e5, .scaling = LinearScaling{.factor = 2}};
  EXPECT_EQ(ParseOrDie(Patched(nested)).rope, expected);
}

TEST(RopeConfig, ThetaMayStandInsideRopeScaling) {
  EXPECT_EQ(ParseOrDie(Patched(R"({"rope_scaling":{"rope_type":"default","rope_theta":7e4}})")).rope.theta, 7e4);
}

TEST(RopeConfig, ThetaBesideRopeScalingCounts) {
  const RopeConfig expected{.theta = 3e4, .scaling = LinearScaling{.factor = 4}};
  EXPECT_EQ(ParseOrDie(Patched(R"({"rope_theta":3e4,"rope_scaling":{"type":"linear","factor":4}})")).rope, expected);
}

TEST(RopeConfig, OriginalLengthIsTheModelsWhereAbsent) {
  const RopeConfig rope = ParseOrDie(Patched(R"({"rope_scaling":{"type":"yarn","factor":4}})")).rope;
  EXPECT_EQ(std::get<YarnScaling>(rope.scaling).original_max_positions, 256);
}

// Qwen2.5's page tells users to add this to a config.json whose max_position_embeddings is 32768.
TEST(RopeConfig, YarnExtendsTheContextBeyondTheFilesMaximum) {
  const std::string recipe = Patched(R"({"max_position_embeddings":32768,"rope_scaling":{
      "factor":4.0,"original_max_position_embeddings":32768,"type":"yarn"}})");
  EXPECT_EQ(ParseOrDie(recipe).max_position_embeddings, 131072);
}

// transformers has computed that folder's reference.json with these settings, so the recipe's spelling must give the
// same model.
TEST(RopeConfig, YarnByRecipeIsTheModelOfTheExtendedConfig) {
  const std::string whole = base::ReadFile(SourcePath("tests/cases/models/llama-yarn/config.json")).value();
  nlohmann::json recipe = nlohmann::json::parse(whole);
  ASSERT_EQ(recipe["max_position_embeddings"], 256);
  recipe["max_position_embeddings"] = 64;
  EXPECT_EQ(ParseOrDie(recipe.dump()), ParseOrDie(whole));
}

TEST(RopeConfig, YarnWithoutFactorReachesTheFilesMaximum) {
  for (const int64_t length : {1000, 4097, 99991, 131072}) {
    const nlohmann::json patch = {{"max_position_embeddings", length},
                                  {"rope_scaling", {{"type", "yarn"}, {"original_max_position_embeddings", 333}}}};
    EXPECT_EQ(ParseOrDie(Patched(patch.dump())).max_position_embeddings, length);
  }
}

// Their files give the extended length: Llama 3.2 has 131072, with an original length of 8192 and a factor of 32.
TEST(RopeConfig, OtherScalingsLeaveTheFilesMaximum) {
  const char* llama3 = R"({"max_position_embeddings":131072,"rope_scaling":{"rope_type":"llama3","factor":32,
      "low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}})";
  EXPECT_EQ(ParseOrDie(Patched(llama3)).max_position_embeddings, 131072);
  EXPECT_EQ(ParseOrDie(Patched(R"({"rope_scaling":{"type":"linear","factor":4}})")).max_position_embeddings, 256);
}

struct BadConfig {
  const char* what;
  std::string text;
  const char* message;
};

const BadConfig kBadConfigs[] = {
    {"NoJson", "{", "config.json: not valid JSON"},
    {"NoObject", "[1]", "config.json: not a JSON object"},
    {"UnknownArchitecture", Patched(R"({"architectures":["GPT2LMHeadModel"],"model_type":"gpt2"})"),
     "architectures expects one of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "
     R"(Gemma2ForCausalLM, Gemma3ForCausalLM, Phi3ForCausalLM, GraniteForCausalLM, SmolLM3ForCausalLM, )"
     R"(Olmo2ForCausalLM, MixtralForCausalLM, Qwen3MoeForCausalLM, Glm4MoeForCausalLM, GptOssForCausalLM, )"
     R"(got ["GPT2LMHeadModel"] with model_type "gpt2")"},
    {"TwoArchitectures", Patched(R"({"architectures":["LlamaForCausalLM","Qwen3ForCausalLM"]})"),
     "architectures expects"},
    {"ContradictingArchitecture", Patched(R"({"model_type":"mistral"})"), R"(with model_type "mistral")"},
    {"NoArchitecture", Patched(R"({"architectures":null,"model_type":null})"), "architectures expects one of"},
    {"ArchitecturesIsAString", Patched(R"({"architectures":"LlamaForCausalLM"})"), "architectures expects a list"},
    {"MissingSize", Patched(R"({"hidden_size":null})"), "config.json: hidden_size is missing"},
    {"NegativeSize", Patched(R"({"hidden_size":-64})"), "hidden_size expects an integer from 1 to 4194304, got -64"},
    {"ZeroSize", Patched(R"({"intermediate_size":0})"), "intermediate_size expects an integer from 1"},
    {"FractionalSize", Patched(R"({"vocab_size":300.5})"), "vocab_size expects an integer, got 300.5"},
    {"HugeSize", Patched(R"({"vocab_size":18446744073709551615})"),
     "vocab_size expects an integer, got 1844674407370955"},
    {"SizeIsAString", Patched(R"({"num_hidden_layers":"3"})"), R"(num_hidden_layers expects an integer, got "3")"},
    {"TooManyTokens", Patched(R"({"vocab_size":1048577})"), "vocab_size expects an integer from 1 to 1048576"},
    {"TooManyLayers", Patched(R"({"num_hidden_layers":2000000000})"),
     "num_hidden_layers expects an integer from 1 to 4096"},
    {"NoPositions", Patched(R"({"max_position_embeddings":null})"), "max_position_embeddings is missing"},
    {"KvHeadsDoNotDivide", Patched(R"({"num_key_value_heads":3})"),
     "num_key_value_heads expects a divisor of num_attention_heads 4, got 3"},
    {"MoreKvHeadsThanHeads", Patched(R"({"num_key_value_heads":8})"), "num_key_value_heads expects a divisor"},
    {"MissingKvHeads", With(kQwen2, R"("num_key_value_heads":null)"), "num_key_value_heads is missing"},
    {"HeadsDoNotDivide", Patched(R"({"num_attention_heads":6})"),
     "num_attention_heads expects a divisor of hidden_size 64"},
    {"OddHeadDim", Patched(R"({"head_dim":15})"), "head_dim expects an even number, got 15"},
    {"ZeroEps", Patched(R"({"rms_norm_eps":0})"), "rms_norm_eps expects a number above 0, got 0"},
    {"EpsIsAString", Patched(R"({"rms_norm_eps":"1e-5"})"), "rms_norm_eps expects a finite number"},
    {"NormOfHeadsTurnedOff", With(kQwen3, R"("use_qk_norm":false)"),
     "use_qk_norm is not supported for Qwen3ForCausalLM: expects true, got false"},
    {"SharedExpert", With(kQwen3Moe, R"("shared_expert_intermediate_size":512)"),
     "shared_expert_intermediate_size is not supported for Qwen3MoeForCausalLM: expects 0, got 512"},
    {"OtherActivation", Patched(R"({"hidden_act":"gelu"})"), "hidden_act expects silu, got gelu"},
    {"MlpBias", With(kMistral, R"("mlp_bias":true)"),
     "mlp_bias is not supported for MistralForCausalLM: expects false, got true"},
    {"Softcapping", Patched(R"({"final_logit_softcapping":30.0})"), "final_logit_softcapping is not supported"},
    {"PartialRotary", Patched(R"({"partial_rotary_factor":0.5})"), "partial_rotary_factor is not supported"},
    {"Quantised", Patched(R"({"quantization_config":{"quant_method":"gptq"}})"), "quantization_config.bits is missing"},
    {"MistralBias", With(kMistral, R"("attention_bias":true)"),
     "attention_bias is not supported for MistralForCausalLM: expects false"},
    {"GemmaActivation", With(kGemma2, R"("hidden_activation":"gelu")"),
     "hidden_activation expects gelu_pytorch_tanh, got gelu"},
    {"GemmaOldActivation", With(kGemma2, R"("hidden_act":"silu")"), "hidden_act expects gelu_pytorch_tanh, got silu"},
    {"GemmaScalar", With(kGemma2, R"("query_pre_attn_scalar":0)"),
     "query_pre_attn_scalar expects a number above 0, got 0"},
    {"GemmaCap", With(kGemma2, R"("attn_logit_softcapping":-1)"),
     "attn_logit_softcapping expects a number above 0, got -1"},
    {"GemmaPattern", With(kGemma3, R"("sliding_window_pattern":0)"),
     "sliding_window_pattern expects an integer above 0, got 0"},
    {"GemmaSeesAhead", With(kGemma3, R"("use_bidirectional_attention":true)"),
     "use_bidirectional_attention is not supported"},
    {"GemmaSlidingScaling", With(kGemma3, R"("rope_parameters":{"full_attention":{"rope_theta":1e6},
                                         "sliding_attention":{"rope_type":"dynamic","rope_theta":1e4}})"),
     "sliding_attention.rope_type expects default, linear, llama3 or yarn, got dynamic"},
    {"LocalThetaOfLlama", Patched(R"({"rope_local_base_freq":1e4})"), "rope_local_base_freq is not supported"},
    {"GraniteMultiplier", With(kGranite, R"("residual_multiplier":0)"),
     "residual_multiplier expects a number above 0, got 0"},
    {"GraniteMultiplierOfLlama", Patched(R"({"embedding_multiplier":12})"), "embedding_multiplier is not supported"},
    {"PhiPartOdd", With(kPhi3, R"("partial_rotary_factor":0.2)"),
     "partial_rotary_factor expects an even number of head_dim 16 dimensions from 2 on, got 0.2"},
    {"PhiPartAboveOne", With(kPhi3, R"("partial_rotary_factor":1.5)"),
     "partial_rotary_factor expects a number above 0 and at most 1, got 1.5"},
    {"PhiLongRopeWithoutLength",
     With(kPhi3, R"("rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[1]})"),
     "original_max_position_embeddings is missing"},
    {"PhiLongRopeTooFew", With(kPhi3, R"("original_max_position_embeddings":64,
                                         "rope_scaling":{"type":"su","short_factor":[1,1],"long_factor":[1,1]})"),
     "rope_scaling expects 8 divisors, one per pair of a head, got 2"},
    {"PhiLongRopeWithoutLongFactors",
     With(kPhi3, R"("original_max_position_embeddings":64,"rope_scaling":{"type":"longrope","short_factor":[1]})"),
     "rope_scaling.long_factor is missing"},
    {"PhiLongRopeNegative", With(kPhi3, R"("original_max_position_embeddings":64,
                                         "rope_scaling":{"type":"longrope","short_factor":[-1],"long_factor":[1]})"),
     "rope_scaling.short_factor expects numbers above 0, got -1"},
    {"MixtralWithoutTheNumberChosen", With(kMixtral, ""), "num_experts_per_tok is missing"},
    {"MixtralChoosesTooMany", With(kMixtral, R"("num_experts_per_tok":5)"),
     "num_experts_per_tok expects an integer from 1 to 4, got 5"},
    {"NoExperts", With(kMixtral, R"("num_local_experts":0,"num_experts_per_tok":1)"),
     "num_local_experts expects an integer from 1 to 4096, got 0"},
    {"TooManyExperts", With(kQwen3Moe, R"("num_experts":5000)"), "num_experts expects an integer from 1 to 4096"},
    {"TooManyExpertsInAll", With(kQwen3Moe, R"("num_experts":64,"num_hidden_layers":4096)"),
     "num_experts expects at most 65536 experts in 4096 layers, got 64 in each"},
    {"QwenExpertsWithoutAWidth", With(kQwen3Moe, R"("moe_intermediate_size":null)"),
     "moe_intermediate_size is missing"},
    {"QwenSparseStep", With(kQwen3Moe, R"("decoder_sparse_step":0)"),
     "decoder_sparse_step expects an integer above 0, got 0"},
    {"QwenDenseLayerOutside", With(kQwen3Moe, R"("mlp_only_layers":[0,3])"),
     "mlp_only_layers expects layers from 0 to 2, got 3"},
    {"QwenMoeWindow", With(kQwen3Moe, R"("use_sliding_window":true)"),
     "use_sliding_window is not supported for Qwen3MoeForCausalLM"},
    {"GlmGroups", With(kGlm4Moe, R"("n_group":2)"),
     "n_group is not supported for Glm4MoeForCausalLM: expects 1, got 2"},
    {"GlmDenseLayers", With(kGlm4Moe, R"("first_k_dense_replace":-1)"),
     "first_k_dense_replace expects an integer of at least 0, got -1"},
    {"GlmShared", With(kGlm4Moe, R"("n_shared_experts":200000)"),
     "n_shared_experts expects an integer from 0 to 131072, got 200000"},
    {"GlmLongRope", With(kGlm4Moe, R"("rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[1]})"),
     "rope_scaling.type expects default, linear, llama3 or yarn, got longrope"},
    {"GptOssWithoutScaling", With(kGptOss, R"("rope_scaling":null)"), "rope_scaling is missing"},
    {"GptOssLimit", With(kGptOss, R"("swiglu_limit":0)"), "swiglu_limit expects a number above 0, got 0"},
    {"GptOssAlpha", With(kGptOss, R"("swiglu_alpha":1.5)"), "swiglu_alpha is not supported for GptOssForCausalLM"},
    {"LimitOfMixtral", With(kMixtral, R"("num_experts_per_tok":2,"swiglu_limit":7.0)"),
     "swiglu_limit is not supported for MixtralForCausalLM"},
    {"ExpertsOfLlama", Patched(R"({"num_local_experts":8})"), "num_local_experts is not supported"},
    {"SmolLmTooFewLayers", With(kSmolLm3, R"("no_rope_layers":[1,0])"),
     "no_rope_layers expects num_hidden_layers = 3 entries, got 2"},
    {"SmolLmFlag", With(kSmolLm3, R"("no_rope_layers":[1,0,2])"), "no_rope_layers expects 0 or 1, got 2"},
    {"SmolLmInterval", With(kSmolLm3, R"("no_rope_layer_interval":0)"),
     "no_rope_layer_interval expects an integer above 0, got 0"},
    {"SmolLmWindow", With(kSmolLm3, R"("use_sliding_window":true,"sliding_window":20)"),
     "use_sliding_window is not supported for SmolLM3ForCausalLM"},
    {"TieIsANumber", Patched(R"({"tie_word_embeddings":1})"), "tie_word_embeddings expects true or false, got 1"},
    {"EosOutsideTheVocabulary", Patched(R"({"eos_token_id":[2,300]})"), "eos_token_id expects ids from 0 to 299"},
    {"NegativeBos", Patched(R"({"bos_token_id":-1})"), "bos_token_id expects ids from 0"},
    {"EosIsAString", Patched(R"({"eos_token_id":"</s>"})"), "eos_token_id expects an integer or a list of integers"},
    {"ZeroWindow", With(kMistral, R"("sliding_window":0)"),
     "sliding_window expects an integer from 1 to 1073741824, got 0"},
    {"WindowBeyond32Bits", With(kMistral, R"("sliding_window":4294967301)"),
     "sliding_window expects an integer from 1"},
    {"LayerTypesTooShort", With(kQwen3, R"("layer_types":["full_attention"])"),
     "layer_types expects num_hidden_layers = 3 entries, got 1"},
    {"LlamaWindow", Patched(R"({"sliding_window":20})"),
     "sliding_window is not supported for LlamaForCausalLM: expects null, got 20"},
    {"GlmWindow", With(kGlm4Moe, R"("sliding_window":20)"), "sliding_window is not supported for Glm4MoeForCausalLM"},
    {"PredictionLayers", Patched(R"({"num_nextn_predict_layers":-1})"),
     "num_nextn_predict_layers expects an integer from 0 to 4096, got -1"},
    {"UnknownLayerType", With(kQwen3, R"("layer_types":["full_attention","linear_attention","full_attention"])"),
     "layer_types expects full_attention or sliding_attention, got linear_attention for layer 1"},
    {"SlidingLayerWithoutAWindow",
     With(kQwen3, R"("layer_types":["full_attention","full_attention","sliding_attention"])"),
     "layer_types says sliding_attention for layer 2"},
    {"SlidingLlama", Patched(R"({"layer_types":["full_attention","full_attention","sliding_attention"]})"),
     "layer_types says sliding_attention for layer 2"},
    {"MixedMistral",
     With(kMistral, R"("layer_types":["full_attention","sliding_attention","sliding_attention"],"sliding_window":9)"),
     "layer_types says full_attention for layer 0"},
    {"DynamicRope", Patched(R"({"rope_scaling":{"type":"dynamic","factor":2.0}})"),
     "rope_scaling.type expects default, linear, llama3 or yarn, got dynamic"},
    {"LongRope", Patched(R"({"rope_parameters":{"rope_type":"longrope","rope_theta":1e4}})"),
     "rope_parameters.rope_type expects default, linear, llama3 or yarn, got longrope"},
    {"RopeIsAList", Patched(R"({"rope_scaling":[1]})"), "rope_scaling expects an object"},
    {"RopeDiffersByLayerType",
     Patched(R"({"rope_parameters":{"full_attention":{"rope_theta":1e4},"sliding_attention":{"rope_theta":1e5}}})"),
     "rope_parameters expects the same values for full_attention and sliding_attention"},
    {"PartialRotaryInside", Patched(R"({"rope_parameters":{"partial_rotary_factor":0.25}})"),
     "rope_parameters.partial_rotary_factor expects 1, got 0.25"},
    {"ThetaTooSmall", Patched(R"({"rope_theta":1})"), "rope_theta expects a number above 1, got 1"},
    {"LinearWithoutFactor", Patched(R"({"rope_scaling":{"type":"linear"}})"), "rope_scaling.factor is missing"},
    {"NegativeFactor", Patched(R"({"rope_scaling":{"type":"linear","factor":-2}})"), "factor expects a number above 0"},
    {"Llama3BoundsSwapped",
     Patched(R"({"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1}})"),
     "rope_scaling.high_freq_factor expects more than low_freq_factor 4, got 1"},
    {"Llama3WithoutBounds", Patched(R"({"rope_scaling":{"rope_type":"llama3","factor":8}})"),
     "low_freq_factor is missing"},
    {"OriginalLengthZero",
     Patched(R"({"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":0}})"),
     "rope_scaling.original_max_position_embeddings expects an integer above 0"},
    {"YarnTooLong", Patched(R"({"rope_scaling":{"type":"yarn","factor":1e9}})"),
     "rope_scaling expects original_max_position_embeddings x factor from 1 to 1073741824, got 256 x 1e+09"},
    {"YarnTooShort", Patched(R"({"rope_scaling":{"type":"yarn","factor":0.001}})"),
     "rope_scaling expects original_max_position_embeddings x factor from 1 to 1073741824, got 256 x 0.001"},
    {"YarnBetasSwapped", Patched(R"({"rope_scaling":{"type":"yarn","factor":4,"beta_fast":1,"beta_slow":2}})"),
     "rope_scaling.beta_fast expects at least beta_slow 2, got 1"},
    {"YarnNegativeBeta", Patched(R"({"rope_scaling":{"type":"yarn","factor":4,"beta_fast":-1}})"),
     "rope_scaling.beta_fast expects a number of at least 0"},
};

class Bad : public ::testing::TestWithParam<BadConfig> {};

TEST_P(Bad, IsRefusedByName) {
  const absl::Status status = Parse(GetParam().text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("config.json: "), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(ModelConfig, Bad, ::testing::ValuesIn(kBadConfigs),
                         [](const auto& info) { return std::string(info.param.what); });

TEST(ModelConfig, SizesThatLieAboutTheWeightsNameTheTensor) {
  const std::string directory = SourcePath("tests/cases/models/llama");
  const auto checkpoint = weights::Checkpoint::Open(directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto first_error = [&](const std::string& patch) {
    json text = json::parse(base::ReadFile(directory + "/config.json").value());
    text.merge_patch(json::parse(patch));
    for (const WeightName& weight : ListWeights(NameWeights(ParseOrDie(text.dump())))) {
      const absl::Status status = checkpoint->Find(weight.name, weight.shape).status();
      if (!status.ok()) return status.ToString();
    }
    return std::string("no error");
  };
  EXPECT_EQ(first_error("{}"), "no error");
  EXPECT_THAT(
      first_error(R"({"vocab_size":305})"),
      HasSubstr("model.safetensors: tensor model.embed_tokens.weight: expected shape [305, 64], got [304, 64]"));
  EXPECT_THAT(first_error(R"({"num_key_value_heads":4})"),
              HasSubstr("tensor model.layers.0.self_attn.k_proj.weight: expected shape [64, 64], got [32, 64]"));
  EXPECT_THAT(first_error(R"({"num_hidden_layers":3})"),
              HasSubstr("tensor model.layers.2.input_layernorm.weight [64] is missing"));
  EXPECT_THAT(first_error(R"({"attention_bias":true})"), HasSubstr("self_attn.q_proj.bias [64] is missing"));
}

TEST(ModelConfig, RandomDamageNeverCrashes) {
  const std::string whole = base::ReadFile(SourcePath("tests/cases/models/llama-yarn/config.json")).value();
  std::mt19937 random(20240608);
  constexpr std::string_view kLikelyBytes = "0123456789-.,:[]{}\"eE \\\0\xff";
  for (int i = 0; i < 5'000; ++i) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] = kLikelyBytes[random() % kLikelyBytes.size()];
    const absl::StatusOr<ModelConfig> config = Parse(damaged);
    if (!config.ok()) continue;
    const ModelWeightNames names = NameWeights(*config);
    ASSERT_EQ(names.layers.size(), config->sliding_windows.size());
    ASSERT_EQ(ComputeRopeFrequencies(config->rope, config->head_dim, 1).inverse.size(), config->head_dim / 2);
  }
}

TEST(ModelConfig, DeepNestingIsRefused) {
  const std::string nested = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  std::string text = Patched(R"({"hidden_size":123456})");
  text.replace(text.find("123456"), 6, nested);
  EXPECT_THAT(Parse(text).status().ToString(), HasSubstr("config.json: expected JSON of at most 64 nested levels"));
}

}  // namespace
}  // namespace foretoken::model
