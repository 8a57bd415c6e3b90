// SPDX-License-Identifier: Apache-2.0
// Files that lie about themselves. If this test fails, a damaged file ends the server, or is served.
#include "common/quantization/find_weight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/model/config/config.h"
#include "tests/testing/models/quantized_layers.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::quantization {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::QuantizedFormat;
using testing::QuantizedFormats;
using testing::QuantizedLayer;

constexpr int64_t kOutputs = 64, kInputs = 128;

const QuantizedFormat& FormatNamed(const std::string& name) {
  for (const QuantizedFormat& format : QuantizedFormats()) {
    if (format.name == name) return format;
  }
  ADD_FAILURE() << name;
  return QuantizedFormats()[0];
}

// Opens a layer and, if it is accepted, reads all of it in both ways.
absl::Status Read(const reference::RawLayer& tensors, const QuantizationConfig& config) {
  const testing::TempDir dir;
  testing::RawTensors all;
  testing::AddLayer("x", tensors, all);
  dir.Write("model.safetensors", testing::SafetensorsOf(all));
  const absl::StatusOr<weights::Checkpoint> checkpoint = weights::Checkpoint::Open(dir.path());
  if (!checkpoint.ok()) return checkpoint.status();
  const auto found = FindWeight(*checkpoint, "x.weight", kernels::Shape(kOutputs, kInputs), config);
  if (!found.ok()) return found.status();
  if (found->stored == nullptr) return absl::OkStatus();
  std::vector<float> values(kOutputs * kInputs);
  found->stored->ReadValues(0, kOutputs, values.data());
  if (const auto groups = found->stored->groups()) {
    EXPECT_EQ(kInputs % groups->group_size, 0);
    std::vector<uint8_t> codes(kOutputs * kInputs);
    std::vector<float> scales(kOutputs * kInputs / groups->group_size), offsets(scales);
    found->stored->ReadGroups(0, kOutputs, codes.data(), scales.data(), offsets.data());
  }
  return absl::OkStatus();
}

reference::RawTensor Zeros(const std::string& dtype, const std::vector<int64_t>& shape, size_t num_bytes) {
  return {.dtype = dtype, .shape = shape, .bytes = std::string(num_bytes, '\0')};
}

using Layer = reference::RawLayer;

struct Refusal {
  const char* format;
  std::function<void(Layer&)> change;
  std::vector<const char*> parts;  // of the message
};

const Refusal kRefusals[] = {
    {"packed_4_group",
     [](Layer& x) {
       x["weight_packed"] = Zeros("I32", {64, 17}, 64 * 17 * 4);
     },
     {"x.weight_packed", "128 inputs of 1 to 8 bits", "got I32 [64, 17]"}},
    {"packed_4_group",
     [](Layer& x) {
       x["weight_packed"] = Zeros("I32", {63, 16}, 63 * 16 * 4);
     },
     {"x.weight_packed: expected I32 [64, 16], got I32 [63, 16]"}},
    {"packed_4_group",
     [](Layer& x) { x["weight_packed"].dtype = "F32"; },
     {"x.weight_packed: expected I32 [64, 16], got F32 [64, 16]"}},
    {"packed_4_group", [](Layer& x) { x.erase("weight_scale"); }, {"x.weight_scale", "is missing beside"}},
    {"packed_4_group",
     [](Layer& x) {
       x["weight_scale"] = Zeros("BF16", {64, 7}, 64 * 7 * 2);
     },
     {"x.weight_scale: expected groups that divide 128 inputs", "declared group_size [32], got 7 groups"}},
    {"packed_4_group",
     [](Layer& x) {
       x["weight_scale"] = Zeros("BF16", {64, 0}, 0);
     },
     {"x.weight_scale: expected groups", "got 0 groups"}},
    {"packed_4_group",
     [](Layer& x) { x["weight_shape"].bytes[0] = 65; },
     {"x.weight_shape: expected [64, 128], got [65, 128]"}},
    {"packed_4_zeros",
     [](Layer& x) {
       x["weight_zero_point"].shape = {4, 8};
     },
     {"x.weight_zero_point: expected I32 [8, 4], got I32 [4, 8]"}},
    {"packed_4_index",
     [](Layer& x) { x["weight_g_idx"].bytes[4] = 4; },
     {"x.weight_g_idx: expected groups from 0 to 3, got 4 for input 1"}},
    {"packed_4_index",
     [](Layer& x) { x["weight_g_idx"].bytes[7] = '\x80'; },
     {"x.weight_g_idx: expected groups from 0 to 3, got -"}},
    {"packed_4_index",  // -1 everywhere means groups of one size, and seven have none here
     [](Layer& x) {
       x["weight_scale"] = Zeros("BF16", {64, 7}, 64 * 7 * 2);
       std::ranges::fill(x["weight_g_idx"].bytes, '\xff');
     },
     {"x.weight_g_idx: expected groups from 0 to 6, got -1 for input 0"}},
    {"int8_channel",
     [](Layer& x) {
       x["weight_scale"].shape = {1, 64};
     },
     {"x.weight_scale: expected F32 or F16 or BF16 [64, 64], got F32 [1, 64]"}},
    {"int8_channel",
     [](Layer& x) {
       x["weight"].shape = {128, 64};
     },
     {"x.weight: expected I8 [64, 128], got I8 [128, 64]"}},
    {"int8_zeros",
     [](Layer& x) { x["weight_zero_point"].dtype = "U8"; },
     {"x.weight_zero_point: expected I8 [64, 4], got U8 [64, 4]"}},
    {"gptq_4",
     [](Layer& x) {
       x["qweight"] = Zeros("I32", {12, 64}, 12 * 64 * 4);
     },
     {"x.qweight: expected 4 or 8 bits for each of 64 outputs and 128 inputs", "got I32 [12, 64]"}},
    {"gptq_4", [](Layer& x) { x["qweight"] = Zeros("I32", {}, 4); }, {"x.qweight: expected 4 or 8 bits", "got I32 []"}},
    {"gptq_4", [](Layer& x) { x.erase("qzeros"); }, {"x.qzeros I32 [4, 8] is missing"}},
    {"gptq_4",
     [](Layer& x) {
       x["scales"].shape = {64, 4};
     },
     {"x.scales", "[64, 64], got F16 [64, 4]"}},
    {"gptq_4_index", [](Layer& x) { x["g_idx"].bytes[2] = 1; }, {"x.g_idx: expected groups from 0 to 3, got 6553"}},
    {"gptq_4_index",
     [](Layer& x) {
       x["g_idx"].shape = {64, 2};
     },
     {"x.g_idx: expected I32 [128], got I32 [64, 2]"}},
    {"awq",
     [](Layer& x) {
       x["qzeros"].shape = {8, 4};
     },
     {"x.qzeros: expected I32 [4, 8], got I32 [8, 4]"}},
    {"fp8_channel",
     [](Layer& x) {
       x["weight_scale"] = Zeros("BF16", {63, 1}, 126);
     },
     {"x.weight_scale: expected a scale for the tensor, one for each of 64 outputs", "got BF16 [63, 1]"}},
    {"fp8_channel", [](Layer& x) { x.erase("weight_scale"); }, {"x.weight_scale", "is missing"}},
    {"fp8_channel",
     [](Layer& x) { x["weight_scale"].dtype = "I16"; },
     {"x.weight_scale: expected F32 or F16 or BF16 or F8_E8M0 [64, 1], got I16 [64, 1]"}},
    {"fp8_tensor",
     [](Layer& x) { x["weight"].dtype = "F8_E5M2"; },
     {"tensor x.weight: expected dtype F32, F16 or BF16, got F8_E5M2"}},
    {"mxfp4_U8",
     [](Layer& x) {
       x["weight_scale"] = Zeros("F8_E4M3", {64, 8}, 512);
     },
     {"x.weight_scale: F8_E4M3 means NVFP4, which is not read: the model is needed in MXFP4"}},
    {"mxfp4_U8",
     [](Layer& x) {
       x["weight_packed"].shape = {32, 128};
     },
     {"x.weight_packed: expected U8 [64, 64], got U8 [32, 128]"}},
    {"awq",
     [](Layer& x) {
       x = {{"B", Zeros("I32", {8, 8}, 256)}};
     },
     {"tensor x.weight [64, 128] is missing"}},
};

TEST(FindWeight, RefusesWhatDoesNotFitByName) {
  for (const Refusal& refusal : kRefusals) {
    testing::RandomValues random(1);
    const QuantizedFormat& format = FormatNamed(refusal.format);
    const nlohmann::json config = {{"quantization_config", format.config}};
    QuantizedLayer layer = format.make(kOutputs, kInputs, random);
    refusal.change(layer.tensors);
    const auto declared = ReadQuantizationConfig(model::JsonFields::Parse(config.dump(), "config.json").value());
    const absl::Status status = Read(layer.tensors, declared.value());
    EXPECT_FALSE(status.ok()) << refusal.format << ": " << refusal.parts[0];
    for (const char* part : refusal.parts) EXPECT_THAT(status.message(), HasSubstr(part)) << refusal.format;
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(FindWeight, KeepsAPlainWeightPlainWhateverIsDeclared) {
  testing::RandomValues random(1);
  const QuantizedLayer layer = FormatNamed("awq").make(kOutputs, kInputs, random);
  for (const bool is_beside_others : {false, true}) {
    testing::RawTensors all;
    if (is_beside_others) testing::AddLayer("x", layer.tensors, all);
    all["x.weight"] = testing::AsBf16(layer);
    const testing::TempDir dir;
    dir.Write("model.safetensors", testing::SafetensorsOf(all));
    const weights::Checkpoint checkpoint = weights::Checkpoint::Open(dir.path()).value();
    const auto found =
        FindWeight(checkpoint, "x.weight", kernels::Shape(kOutputs, kInputs), {.is_declared = true, .bits = {4}});
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->stored, nullptr);
    EXPECT_EQ(found->floats.dtype, kernels::DType::kBF16);
  }
}

TEST(OpenedWeights, OpenEachWeightOnceAndRememberNoError) {
  testing::RandomValues random(1);
  testing::RawTensors all;
  testing::AddLayer("x", FormatNamed("gptq_4_index").make(kOutputs, kInputs, random).tensors, all);
  const testing::TempDir dir;
  dir.Write("model.safetensors", testing::SafetensorsOf(all));
  const auto checkpoint = std::make_shared<const weights::Checkpoint>(weights::Checkpoint::Open(dir.path()).value());
  const OpenedWeights opened(checkpoint);
  const kernels::Shape shape(kOutputs, kInputs);
  const FoundWeight* const found = opened.Find("x.weight", shape, {}).value();
  ASSERT_NE(found->stored, nullptr);
  EXPECT_EQ(opened.Find("x.weight", shape, {}).value(), found);
  EXPECT_EQ(opened.checkpoint(), checkpoint);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(opened.Find("x.weight", kernels::Shape(kInputs, kOutputs), {}).ok());
    EXPECT_FALSE(opened.Find("y.weight", shape, {}).ok());
  }
}

TEST(FindWeight, TransposesPlainExpertsWhereTheModelHasThemSo) {
  testing::RawTensors all;
  const float values[] = {1, 2, 3, 4, 5, 6};  // [3 inputs, 2 outputs]
  all["m.experts.0.down_proj.weight"] = {
      .dtype = "F32", .shape = {3, 2}, .bytes = std::string(reinterpret_cast<const char*>(values), sizeof(values))};
  const testing::TempDir dir;
  dir.Write("model.safetensors", testing::SafetensorsOf(all));
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(dir.path()).value();
  const QuantizationConfig config = {.has_transposed_experts = true};
  const std::string name = "m.experts.0.down_proj.weight";
  const auto found = FindWeight(checkpoint, name, kernels::Shape(2, 3), config);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<float> read(6), second_row(3);
  found->stored->ReadValues(0, 2, read.data());
  found->stored->ReadValues(1, 1, second_row.data());
  EXPECT_EQ(read, (std::vector<float>{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(second_row, (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(found->format, "F32 transposed");
  EXPECT_THAT(FindWeight(checkpoint, name, kernels::Shape(3, 2), config).status().message(),
              HasSubstr("expected F32 or F16 or BF16 [2, 3], got F32 [3, 2]"));
  EXPECT_EQ(FindWeight(checkpoint, name, kernels::Shape(3, 2), {}).value().stored, nullptr);
}

// One change to a layer, or to what is declared, that keeps the file itself valid.
void Mutate(testing::RandomValues& random, Layer& layer, QuantizationConfig& config) {
  if (random.Coin(0.1)) {
    config = {.is_declared = true, .bits = {1 + random.Below(8)}, .group_sizes = {1 + random.Below(200)}};
    config.block_sizes = {{.outputs = 1 + random.Below(200), .inputs = 1 + random.Below(200)}};
    return;
  }
  if (layer.empty()) return;
  auto entry = layer.begin();
  std::advance(entry, random.Below(static_cast<int32_t>(layer.size())));
  reference::RawTensor& tensor = entry->second;
  const auto rank = static_cast<int32_t>(tensor.shape.size());
  switch (random.Below(6)) {
    case 0:
      layer.erase(entry);
      return;
    case 1: {
      static constexpr const char* kParts[] = {"weight", "weight_packed", "weight_scale", "qweight", "scales", "g_idx"};
      reference::RawTensor moved = tensor;
      layer.erase(entry);
      layer[kParts[random.Below(6)]] = std::move(moved);
      return;
    }
    case 2: {
      static constexpr const char* kDTypes[][4] = {
          {"U8", "I8", "F8_E4M3", "F8_E8M0"}, {"F16", "BF16", "I16", "U16"}, {"F32", "I32", "U32", "F32"}};
      for (const auto& same_size : kDTypes) {
        if (std::ranges::find(same_size, tensor.dtype) != std::end(same_size))
          tensor.dtype = same_size[random.Below(4)];
      }
      return;
    }
    case 3:  // the same bytes in another shape
      if (rank == 2) std::swap(tensor.shape[0], tensor.shape[1]);
      if (rank > 0 && random.Coin(0.5)) tensor.shape.insert(tensor.shape.begin() + random.Below(rank), 1);
      return;
    case 4:  // more or fewer rows
      if (rank > 0 && tensor.shape[0] > 0) {
        const size_t row_bytes = tensor.bytes.size() / tensor.shape[0];
        tensor.shape[0] = random.Below(2 * static_cast<int32_t>(tensor.shape[0]) + 2);
        tensor.bytes.resize(row_bytes * tensor.shape[0]);
      }
      return;
    default:
      if (!tensor.bytes.empty()) {
        tensor.bytes[random.Below(static_cast<int32_t>(tensor.bytes.size()))] ^=
            static_cast<char>(1 << random.Below(8));
      }
  }
}

void ReadMutatedLayers(int count) {
  int num_refused = 0;
  for (int i = 0; i < count; ++i) {
    testing::RandomValues random(i);
    const QuantizedFormat& format = QuantizedFormats()[random.Below(static_cast<int32_t>(QuantizedFormats().size()))];
    QuantizedLayer layer = format.make(kOutputs, kInputs, random);
    QuantizationConfig config;
    for (int change = 0; change <= random.Below(3); ++change) Mutate(random, layer.tensors, config);
    num_refused += Read(layer.tensors, config).ok() ? 0 : 1;
  }
  EXPECT_GT(num_refused, count / 4);
  EXPECT_LT(num_refused, count);
}

TEST(FindWeight, SurvivesMutatedLayers) { ReadMutatedLayers(400); }
TEST(FindWeightLong, SurvivesMutatedLayers) { ReadMutatedLayers(20'000); }

}  // namespace
}  // namespace foretoken::quantization
