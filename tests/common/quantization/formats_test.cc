// SPDX-License-Identifier: Apache-2.0
// Every quantised format against the reference, bit for bit. If this test fails, a model is served with wrong weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/model/config/config.h"
#include "common/quantization/find_weight.h"
#include "tests/testing/models/quantized_layers.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::quantization {
namespace {

using kernels::IntegerGroups;
using kernels::Shape;
using testing::QuantizedFormat;
using testing::QuantizedLayer;

QuantizationConfig ConfigOf(const nlohmann::json& declared) {
  const auto fields = model::JsonFields::Parse(nlohmann::json{{"quantization_config", declared}}.dump(), "config.json");
  const absl::StatusOr<QuantizationConfig> config = ReadQuantizationConfig(fields.value());
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(QuantizationConfig());
}

// A layer in a file of its own.
struct Stored {
  testing::TempDir dir;
  QuantizedLayer layer;
  weights::Checkpoint checkpoint;
  FoundWeight weight;

  Stored(QuantizedLayer given, const nlohmann::json& config)
      : layer(std::move(given)), checkpoint(Open()), weight(Find(config)) {}

  weights::Checkpoint Open() const {
    testing::RawTensors all;
    testing::AddLayer("x", layer.tensors, all);
    dir.Write("model.safetensors", testing::SafetensorsOf(all));
    return weights::Checkpoint::Open(dir.path()).value();
  }
  FoundWeight Find(const nlohmann::json& config) const {
    absl::StatusOr<FoundWeight> found =
        FindWeight(checkpoint, "x.weight", Shape(layer.shape.outputs, layer.shape.inputs), ConfigOf(config));
    EXPECT_TRUE(found.ok()) << found.status();
    return *std::move(found);
  }
};

const QuantizedFormat& FormatOf(const std::string& name) {
  return *std::ranges::find(testing::QuantizedFormats(), name, &QuantizedFormat::name);
}

constexpr std::pair<int64_t, int64_t> kShapes[] = {{32, 64}, {96, 160}, {288, 288}, {64, 416}};

// The first place at which two lists of floats differ in bits; -1: none. NaN equals NaN.
int64_t FirstDifference(const std::vector<float>& values, const std::vector<float>& expected) {
  if (values.size() != expected.size()) return 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) && std::isnan(expected[i])) continue;
    if (std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(expected[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

class Formats : public ::testing::TestWithParam<QuantizedFormat> {};

TEST_P(Formats, HoldTheReferencesValues) {
  testing::RandomValues random(1);
  for (const auto& [outputs, inputs] : kShapes) {
    const Stored stored(GetParam().make(outputs, inputs, random), GetParam().config);
    ASSERT_NE(stored.weight.stored, nullptr);
    std::vector<float> values(outputs * inputs);
    stored.weight.stored->ReadValues(0, outputs, values.data());
    EXPECT_EQ(FirstDifference(values, stored.layer.values), -1) << outputs << " x " << inputs;
  }
}

TEST_P(Formats, HoldTheSameValuesInAnyPieces) {
  testing::RandomValues random(2);
  const int64_t outputs = 96, inputs = 160;
  const Stored stored(GetParam().make(outputs, inputs, random), GetParam().config);
  std::vector<float> values(outputs * inputs);
  for (int64_t row = 0, count = 0; row < outputs; row += count) {
    count = std::min<int64_t>(1 + random.Below(17), outputs - row);
    stored.weight.stored->ReadValues(row, count, values.data() + row * inputs);
  }
  EXPECT_EQ(FirstDifference(values, stored.layer.values), -1);
}

// A scale of these formats has at most 11 bits if there are offsets, and a code or a zero point at most 9. So both
// products and their sum are exact. Without offsets there is one rounding, the same one. With a scale of 24 bits and
// offsets, groups would differ from values by roundings.
TEST_P(Formats, SayTheSameInGroups) {
  testing::RandomValues random(3);
  for (const auto& [outputs, inputs] : kShapes) {
    const Stored stored(GetParam().make(outputs, inputs, random), GetParam().config);
    const kernels::StoredMatrix& matrix = *stored.weight.stored;
    const std::optional<IntegerGroups> groups = matrix.groups();
    ASSERT_TRUE(groups.has_value() == GetParam().has_groups) << outputs << " x " << inputs;
    if (!groups) continue;
    const int64_t num_groups = inputs / groups->group_size;
    std::vector<uint8_t> codes(outputs * inputs);
    std::vector<float> scales(outputs * num_groups), offsets(outputs * num_groups, 0.0f), values(codes.size());
    for (int64_t row = 0; row < outputs; row += 32) {
      matrix.ReadGroups(row, 32, codes.data() + row * inputs, scales.data() + row * num_groups,
                        offsets.data() + row * num_groups);
    }
    const std::span<const int32_t> order = matrix.input_order();
    EXPECT_EQ(order.empty(), !groups->is_reordered);
    for (int64_t i = 0; i < outputs * inputs; ++i) {
      const int64_t group = i / inputs * num_groups + i % inputs / groups->group_size;
      ASSERT_LT(codes[i], 1 << groups->bits);
      const float product = scales[group] * static_cast<float>(codes[i] - (1 << (groups->bits - 1)));
      const int64_t input = order.empty() ? i % inputs : order[i % inputs];
      values[i / inputs * inputs + input] = groups->has_offsets ? product + offsets[group] : product;
    }
    std::vector<float> expected = stored.layer.values;
    for (float& value : expected) value += 0.0f;  // as an integer MXFP4's minus zero is zero
    EXPECT_EQ(FirstDifference(values, expected), -1) << outputs << " x " << inputs;
  }
}

TEST_P(Formats, ReadEveryTensorButThoseOfActivations) {
  testing::RandomValues random(4);
  const Stored stored(GetParam().make(64, 128, random), GetParam().config);
  size_t num_bytes = 0;
  for (const auto& [part, tensor] : stored.layer.tensors) {
    num_bytes += part.starts_with("input_scale") ? 0 : tensor.bytes.size();
  }
  EXPECT_EQ(stored.weight.num_bytes(), num_bytes);
}

INSTANTIATE_TEST_SUITE_P(All, Formats, ::testing::ValuesIn(testing::QuantizedFormats()),
                         [](const auto& info) { return info.param.name; });

TEST(Formats, ModelOptsScalesOfBlocksHaveTwoMoreDimensions) {
  testing::RandomValues random(6);
  QuantizedLayer layer = FormatOf("fp8_blocks").make(256, 384, random);
  layer.tensors["weight_scale_inv"].shape = {2, 1, 3, 1};
  const Stored stored(std::move(layer), FormatOf("fp8_blocks").config);
  std::vector<float> values(256 * 384);
  stored.weight.stored->ReadValues(0, 256, values.data());
  EXPECT_EQ(FirstDifference(values, stored.layer.values), -1);
}

TEST(Formats, Fp8CodesThatAreNoNumberStayNoNumber) {
  testing::RandomValues random(5);
  QuantizedLayer layer = FormatOf("fp8_tensor").make(32, 64, random);
  for (size_t i = 0; i < 256; ++i) layer.tensors["weight"].bytes[i] = static_cast<char>(i);
  layer.values = reference::Fp8Values(layer.tensors, layer.shape);
  const Stored stored(std::move(layer), FormatOf("fp8_tensor").config);
  std::vector<float> values(32 * 64);
  stored.weight.stored->ReadValues(0, 32, values.data());
  EXPECT_TRUE(std::isnan(values[0x7f]) && std::isnan(values[0xff]));
  EXPECT_EQ(FirstDifference(values, stored.layer.values), -1);
}

TEST(Formats, ADeclaredGroupSizeThatDividesNothingLeavesAShorterLastGroup) {
  testing::RandomValues random(7);
  QuantizedLayer layer = FormatOf("packed_4_group").make(32, 96, random);
  layer.tensors["weight_scale"].shape = {32, 2};  // of 64 inputs, and of 32
  layer.tensors["weight_scale"].bytes.resize(32 * 2 * 2);
  layer.shape.group_size = 64;
  layer.values = reference::PackQuantizedValues(layer.tensors, layer.shape);
  nlohmann::json config = FormatOf("packed_4_group").config;
  config["config_groups"]["group_0"]["weights"]["group_size"] = 64;
  const Stored stored(std::move(layer), config);
  std::vector<float> values(32 * 96);
  stored.weight.stored->ReadValues(0, 32, values.data());
  EXPECT_EQ(FirstDifference(values, stored.layer.values), -1);
  EXPECT_FALSE(stored.weight.stored->groups().has_value());
}

TEST(Formats, AnIndexThatWasNeverSetMeansConsecutiveGroups) {
  testing::RandomValues random(8);
  QuantizedLayer layer = FormatOf("packed_4_group").make(32, 96, random);
  layer.tensors["weight_g_idx"] = {.dtype = "I32", .shape = {96}, .bytes = std::string(96 * 4, '\xff')};
  const Stored stored(std::move(layer), FormatOf("packed_4_group").config);
  std::vector<float> values(32 * 96);
  stored.weight.stored->ReadValues(0, 32, values.data());
  EXPECT_EQ(FirstDifference(values, stored.layer.values), -1);
  EXPECT_TRUE(stored.weight.stored->groups().has_value());
}

// The writer of version 1 subtracts 1 from every zero point of a word at once, and one of 0 borrows from its neighbour.
TEST(Formats, BothVersionsOfGptqHaveZeroPointsOfZero) {
  for (const auto& [name, ones] : {std::pair("gptq_4_zeros", 0x11111111u), std::pair("gptq_8_zeros", 0x01010101u)}) {
    testing::RandomValues random(9);
    QuantizedLayer version2 = FormatOf(name).make(64, 128, random), version1 = version2;
    const uint32_t word = 0x80050008;  // several zeros, some next to each other
    for (size_t at = 0; at < version2.tensors["qzeros"].bytes.size(); at += sizeof(word)) {
      const uint32_t borrowed = word - ones;
      std::memcpy(&version2.tensors["qzeros"].bytes[at], &word, sizeof(word));
      std::memcpy(&version1.tensors["qzeros"].bytes[at], &borrowed, sizeof(word));
    }
    nlohmann::json config = FormatOf(name).config;
    std::vector<std::vector<float>> values;
    for (const auto& [version, layer] : {std::pair("gptq", &version1), std::pair("gptq_v2", &version2)}) {
      config["checkpoint_format"] = version;
      const Stored stored(*layer, config);
      stored.weight.stored->ReadValues(0, 64, values.emplace_back(64 * 128).data());
    }
    EXPECT_EQ(FirstDifference(values[0], values[1]), -1) << name;
    version2.shape.is_gptq_v2 = true;
    EXPECT_EQ(FirstDifference(values[1], reference::GptqValues(version2.tensors, version2.shape)), -1) << name;
  }
}

TEST(Formats, SymmetricGptqHasNoOffsets) {
  for (const QuantizedFormat& format : testing::QuantizedFormats()) {
    if (format.name != "gptq_4" && format.name != "gptq_4_zeros") continue;
    testing::RandomValues random(6);
    const Stored stored(format.make(64, 128, random), format.config);
    EXPECT_EQ(stored.weight.stored->groups()->has_offsets, format.name == "gptq_4_zeros");
    EXPECT_EQ(stored.weight.stored->groups()->scale_dtype, kernels::DType::kF16);
    EXPECT_EQ(stored.weight.stored->groups()->group_size, 32);
  }
}

}  // namespace
}  // namespace foretoken::quantization
