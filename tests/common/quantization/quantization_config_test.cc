// SPDX-License-Identifier: Apache-2.0
// Declarations of quantisation. If this test fails, a format that is not read is not refused, or one that is read is.
#include "common/quantization/quantization_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/models/quantized_layers.h"

namespace foretoken::quantization {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

absl::StatusOr<QuantizationConfig> Read(const std::string& text) {
  const auto fields = model::JsonFields::Parse(text, "config.json");
  if (!fields.ok()) return fields.status();
  return ReadQuantizationConfig(*fields);
}

absl::StatusOr<QuantizationConfig> ReadDeclared(const std::string& declared) {
  return Read(R"({"quantization_config":)" + declared + "}");
}

TEST(QuantizationConfig, NothingIsDeclaredWithoutIt) {
  EXPECT_EQ(Read("{}").value(), QuantizationConfig());
  EXPECT_EQ(ReadDeclared("null").value(), QuantizationConfig());
}

TEST(QuantizationConfig, ReadsWhatTensorsDoNotSay) {
  EXPECT_EQ(ReadDeclared(R"({"quant_method":"gptq","bits":8,"group_size":-1,"checkpoint_format":"gptq_v2"})").value(),
            (QuantizationConfig{.is_declared = true, .bits = {8}, .is_gptq_v2 = true}));
  EXPECT_EQ(
      ReadDeclared(R"({"quant_method":"awq","bits":4,"group_size":64,"version":"GEMM","zero_point":true})").value(),
      (QuantizationConfig{.is_declared = true, .bits = {4}, .group_sizes = {64}}));
  EXPECT_EQ(ReadDeclared(R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,64]})").value(),
            (QuantizationConfig{.is_declared = true, .block_sizes = {{.outputs = 128, .inputs = 64}}}));
  EXPECT_EQ(
      ReadDeclared(R"({"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{
      "group_0":{"format":"pack-quantized","weights":{"num_bits":4,"type":"int","strategy":"group","group_size":128}},
      "group_1":{"format":"float-quantized","weights":{"num_bits":8,"type":"float","strategy":"block",
                 "block_structure":[128,128]},"input_activations":{"num_bits":8,"type":"float","dynamic":true}}},
      "sparsity_config":{"format":"dense"},"transform_config":{},"ignore":["lm_head"]})")
          .value(),
      (QuantizationConfig{
          .is_declared = true, .bits = {4}, .group_sizes = {128}, .block_sizes = {{.outputs = 128, .inputs = 128}}}));
}

TEST(QuantizationConfig, OtherWritersOfTheSameLayoutsDeclareThemAsTheirFirstWritersDo) {
  const auto read = [](const char* declared) { return ReadDeclared(declared).value(); };
  EXPECT_EQ(read(R"({"quant_method":"auto-round","bits":4,"group_size":128,"packing_format":"auto_round:auto_gptq",
                     "data_type":"int","extra_config":{"lm_head":{"bits":16},"x":{"bits":8,"group_size":32}}})"),
            (QuantizationConfig{.is_declared = true, .bits = {4}, .group_sizes = {128, 32}}));
  EXPECT_EQ(read(R"({"quant_method":"intel/auto-round","bits":8,"group_size":64})"),
            (QuantizationConfig{.is_declared = true, .bits = {8}, .group_sizes = {64}}));
  EXPECT_EQ(read(R"({"quant_method":"auto-round","bits":4,"group_size":64,"packing_format":"auto_awq"})"),
            (QuantizationConfig{.is_declared = true, .bits = {4}, .group_sizes = {64}}));
  for (const char* declared :
       {R"({"quant_method":"modelopt","quant_algo":"FP8","kv_cache_scheme":{"num_bits":8},"ignore":["lm_head"]})",
        R"({"quant_method":"modelopt","quantization":{"quant_algo":"FP8_PER_CHANNEL_PER_TOKEN"}})",
        R"({"quant_method":"fbgemm_fp8","activation_scale_ub":1200.0,"modules_to_not_convert":["lm_head"]})"}) {
    EXPECT_EQ(read(declared), QuantizationConfig{.is_declared = true}) << declared;
  }
}

TEST(QuantizationConfig, ReadsTheOldNameOfCompressedTensors) {
  const auto config = Read(R"({"compression_config":{"config_groups":{"group_0":{"weights":{"num_bits":4}}}}})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->bits, std::vector<int>{4});
}

struct ConfigRefusal {
  const char* declared;
  const char* message;
};

constexpr ConfigRefusal kConfigRefusals[] = {
    {R"({"quant_method":"bitsandbytes","load_in_4bit":true})",
     "config.json: quantization_config.quant_method expects compressed-tensors, gptq, awq, auto-round, fp8, "
     "fbgemm_fp8, "
     "modelopt or mxfp4, got \"bitsandbytes\": the model is needed in one of these formats or in bf16"},
    {R"({"bits":4})",
     "quant_method expects compressed-tensors, gptq, awq, auto-round, fp8, fbgemm_fp8, modelopt or mxfp4, got null"},
    {R"({"quant_method":"gptq","bits":3})",
     "quantization_config.bits expects 4 or 8, got 3: the model is needed with GPTQ of 4 or 8 bits"},
    {R"({"quant_method":"gptq","bits":2})", "bits expects 4 or 8, got 2"},
    {R"({"quant_method":"gptq","bits":4,"group_size":0})", "group_size expects -1 or an integer from 1"},
    {R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})",
     "checkpoint_format expects gptq, gptq_v2, got \"marlin\": the model is needed in one of these layouts"},
    {R"({"quant_method":"gptq","bits":4,"is_marlin_format":true})",
     "is_marlin_format expects false, got true: the model is needed in the layout gptq"},
    {R"({"quant_method":"awq","bits":4,"version":"gemv"})",
     "version expects gemm, got \"gemv\": the model is needed in this layout"},
    {R"({"quant_method":"awq","bits":4,"version":"marlin"})", "version expects gemm, got \"marlin\""},
    {R"({"quant_method":"awq","bits":8})", "bits expects 4, got 8: the model is needed with AWQ of 4 bits"},
    {R"({"quant_method":"awq","bits":4,"backend":"llm-awq"})", "backend expects autoawq, got \"llm-awq\""},
    {R"({"quant_method":"auto-round","bits":3})", "bits expects 4 or 8, got 3: the model is needed with GPTQ"},
    {R"({"quant_method":"auto-round","bits":8,"packing_format":"auto_round:auto_awq"})", "bits expects 4, got 8"},
    {R"({"quant_method":"auto-round","bits":4,"packing_format":"auto_round:llm_compressor"})",
     "quantization_config.packing_format expects auto_round:auto_gptq, auto_gptq, auto_round:auto_awq, auto_awq, got "
     "\"auto_round:llm_compressor\": the model is needed in one of these layouts"},
    {R"({"quant_method":"auto-round","bits":4,"data_type":"mx_fp"})", "data_type expects int, got \"mx_fp\""},
    {R"({"quant_method":"auto-round","bits":4,"extra_config":{"model.x":{"bits":8,"group_size":0}}})",
     "extra_config.model.x.group_size expects -1 or an integer from 1"},
    {R"({"quant_method":"modelopt","quant_algo":"NVFP4"})",
     "quantization_config.quant_algo expects fp8, fp8_per_channel_per_token, fp8_pb_wo, got \"NVFP4\": the model is "
     "needed in FP8 or in bf16"},
    {R"({"quant_method":"modelopt","quantization":{"quant_algo":"W4A8_AWQ"}})", "quantization.quant_algo expects fp8"},
    {R"({"quant_method":"modelopt"})", "quant_algo"},
    {R"({"quant_method":"fp8","fmt":"e5m2"})", "fmt expects e4m3, float8_e4m3fn, got \"e5m2\""},
    {R"({"quant_method":"fp8","weight_block_size":[0,128]})", "weight_block_size expects two integers from 1"},
    {R"({"quant_method":"fp8","weight_block_size":[128]})", "weight_block_size expects two integers from 1"},
    {R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"})",
     "got \"nvfp4-pack-quantized\": the model is needed in one of these formats or in bf16"},
    {R"({"quant_method":"compressed-tensors","format":"marlin-24"})", "format expects pack-quantized"},
    {R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"sparse-24-bitmask"}})",
     "quantization_config.sparsity_config.format expects dense, got \"sparse-24-bitmask\": the model is needed without "
     "sparse storage"},
    {R"({"quant_method":"compressed-tensors","transform_config":{"config_groups":{"R1":{}}}})",
     "transform_config.config_groups expects no transform, got R1: the model is needed without transforms at run time"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{"num_bits":16}}}})",
     "quantization_config.config_groups.group_0.weights.num_bits expects 1 to 8, got 16"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"format":"nvfp4-pack-quantized"}}})",
     "config_groups.group_0.format expects"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"type":"float","num_bits":6}}}})",
     "type expects int, or float of 8 or 4 bits, got \"float\" of 6 bits"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"strategy":"tensor_group"}}}})",
     "strategy expects tensor, channel, group, block, got \"tensor_group\""},
    {R"({"quant_method":"compressed-tensors","config_groups":[1]})", "config_groups expects an object"},
    {R"("gptq")", "quantization_config expects an object"},
};

TEST(QuantizationConfig, RefusesWhatIsNotReadInOneLine) {
  for (const ConfigRefusal& refusal : kConfigRefusals) {
    const auto config = ReadDeclared(refusal.declared);
    EXPECT_FALSE(config.ok()) << refusal.declared;
    EXPECT_THAT(config.status().message(), HasSubstr(refusal.message));
    EXPECT_EQ(config.status().message().find('\n'), std::string::npos);
  }
}

// Every layer of a hostile file could name a size of its own, and each is compared with all before it.
TEST(QuantizationConfig, ReadsSixtyFourSizesAndNoMore) {
  const auto read = [](int num_sizes) {
    json declared = {{"quant_method", "auto-round"}, {"bits", 4}, {"extra_config", json::object()}};
    for (int i = 1; i <= num_sizes; ++i) {
      declared["extra_config"]["x" + std::to_string(i)] = {{"group_size", i}};
      declared["extra_config"]["y" + std::to_string(i)] = {{"group_size", i}};
    }
    return ReadDeclared(declared.dump());
  };
  ASSERT_TRUE(read(64).ok()) << read(64).status();
  EXPECT_EQ(read(64)->group_sizes.size(), 64);
  EXPECT_EQ(read(65).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(read(65).status().message(),
              HasSubstr(".group_size expects at most 64 different values in all, got one more: "));
  json blocks = {{"quant_method", "compressed-tensors"}, {"config_groups", json::object()}};
  for (int i = 1; i <= 65; ++i) {
    blocks["config_groups"]["g" + std::to_string(i)]["weights"] = {{"block_structure", {i, 128}}};
  }
  EXPECT_THAT(ReadDeclared(blocks.dump()).status().message(),
              HasSubstr(".weights.block_structure expects at most 64 different values in all, got one more: ["));
}

// Replaces, removes or moves one value somewhere in a declaration.
void Mutate(testing::RandomValues& random, json& value) {
  if (value.is_structured() && !value.empty() && random.Coin(0.8)) {
    auto item = value.begin();
    std::advance(item, random.Below(static_cast<int32_t>(value.size())));
    if (random.Coin(0.1)) {
      value.erase(item);
    } else {
      Mutate(random, *item);
    }
    return;
  }
  static const json kValues[] = {nullptr,
                                 true,
                                 -1,
                                 0,
                                 3,
                                 1e300,
                                 int64_t{1} << 62,
                                 json::array(),
                                 json::object(),
                                 "gptq",
                                 "awq",
                                 "fp8",
                                 "compressed-tensors",
                                 "group",
                                 "",
                                 {128, 128},
                                 {-1, 0},
                                 {{"group_0", {{"weights", {{"num_bits", 5}}}}}}};
  value = kValues[random.Below(std::size(kValues))];
}

void ReadMutatedDeclarations(int count) {
  int num_refused = 0;
  for (int i = 0; i < count; ++i) {
    testing::RandomValues random(i);
    const auto& formats = testing::QuantizedFormats();
    json declared = formats[random.Below(static_cast<int32_t>(formats.size()))].config;
    for (int change = 0; change <= random.Below(3); ++change) Mutate(random, declared);
    std::string text = declared.dump();
    if (random.Coin(0.1))
      text[random.Below(static_cast<int32_t>(text.size()))] ^= static_cast<char>(1 << random.Below(7));
    const auto config = ReadDeclared(text);
    num_refused += config.ok() ? 0 : 1;
    if (!config.ok()) continue;
    for (const int64_t size : config->group_sizes) EXPECT_GT(size, 0);
    for (const BlockSize& block : config->block_sizes) EXPECT_GT(std::min(block.outputs, block.inputs), 0);
  }
  EXPECT_GT(num_refused, count / 8);
  EXPECT_LT(num_refused, count);
}

TEST(QuantizationConfig, SurvivesMutations) { ReadMutatedDeclarations(500); }
TEST(QuantizationConfigLong, SurvivesMutations) { ReadMutatedDeclarations(20'000); }

}  // namespace
}  // namespace foretoken::quantization
