// SPDX-License-Identifier: Apache-2.0
// Drafters that read features may have matrices of integers. A quantised target lends them its embedding and head, and
// options round their own matrices. If these tests fail, a drafter of a quantised target cannot be served, or an option
// does nothing.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/models/quantized_layers.h"
#include "tests/testing/models/tiny_drafters.h"
#include "tests/testing/paths.h"

namespace foretoken::proposer {
namespace {

using ::testing::HasSubstr;
using testing::kTinyHidden;
using testing::TempDir;
using testing::TinyDrafter;

struct Kind {
  std::string name, method;
  TinyDrafter drafter;
};

// The logits of a chain. The first rows have features, and the others attend to their K and V.
std::vector<testing::Row> RowsOf(const Kind& kind, const std::string& target,
                                 const kernels::QuantizationOptions& quantization = {}) {
  const TempDir dir;
  kind.drafter.Write(dir);
  const absl::StatusOr<Drafter> loaded = LoadDrafter(kind.method, {.model_directory = dir.path(),
                                                                   .target_directory = target,
                                                                   .quantization = quantization,
                                                                   .num_threads = 1,
                                                                   .kv_cache_mb = 1});
  EXPECT_TRUE(loaded.ok()) << kind.name << ": " << loaded.status();
  if (!loaded.ok()) return {};
  return testing::RunDraftChain(*loaded->model, {3, 41}, testing::RandomFeatures(2, kTinyHidden, 9));
}

// The largest difference, as a part of the largest logit. Ids that have no row are minus infinity in both.
double DifferenceOf(const std::vector<testing::Row>& left, const std::vector<testing::Row>& right) {
  EXPECT_EQ(left.size(), right.size());
  double largest = 0, size = 0;
  for (size_t row = 0; row < left.size(); ++row) {
    EXPECT_EQ(left[row].size(), right[row].size());
    for (size_t id = 0; id < left[row].size(); ++id) {
      EXPECT_EQ(std::isfinite(left[row][id]), std::isfinite(right[row][id])) << id;
      if (!std::isfinite(left[row][id])) continue;
      largest = std::max<double>(largest, std::abs(left[row][id] - right[row][id]));
      size = std::max<double>(size, std::abs(left[row][id]));
    }
  }
  return largest / size;
}

std::vector<Kind> BorrowingKinds() {
  return {
      {"EAGLE-3, some ids", "eagle3", testing::MakeTinyEagle3({.has_head = false})},
      {"EAGLE-3", "eagle3", testing::MakeTinyEagle3({.has_head = false, .draft_vocab_size = testing::kTinyVocabulary})},
      {"P-EAGLE", "eagle3", testing::MakeTinyPEagle({.has_head = false})},
      {"EAGLE", "eagle", testing::MakeTinyEagle({.has_embedding = false})},
      {"DFlash", "dflash", testing::MakeTinyDflash({})},
      {"Medusa", "medusa", testing::MakeTinyMedusa({.num_lm_heads = 0})}};
}

// A target whose embedding and head are quantised, and one with the bf16 of the same values.
struct TargetTwins {
  TempDir quantized, plain;

  explicit TargetTwins(const testing::QuantizedFormat& format) {
    const testing::TinyTarget files;
    nlohmann::json config = base::ReadJson(files.directory() + "/config.json").value();
    testing::RawTensors in_integers, in_bf16;
    testing::RandomValues random(7);
    for (const std::string name : {"model.embed_tokens", "lm_head"}) {
      const testing::QuantizedLayer layer = format.make(testing::kTinyVocabulary, kTinyHidden, random);
      testing::AddLayer(name, layer.tensors, in_integers);
      in_bf16[name + ".weight"] = testing::AsBf16(layer);
    }
    for (TempDir* const dir : {&plain, &quantized}) dir->CopyFrom(files.directory());
    plain.Write("model.safetensors", testing::SafetensorsOf(in_bf16));
    config["quantization_config"] = format.config;
    quantized.Write("config.json", config.dump());
    quantized.Write("model.safetensors", testing::SafetensorsOf(in_integers));
  }
};

TEST(QuantizedTarget, LendsItsEmbeddingAndHead) {
  for (const testing::QuantizedFormat& format : testing::QuantizedFormats()) {
    const TargetTwins target(format);
    for (const Kind& kind : BorrowingKinds()) {
      SCOPED_TRACE(format.name + ", " + kind.name);
      const double difference = DifferenceOf(RowsOf(kind, target.plain.path()), RowsOf(kind, target.quantized.path()));
      EXPECT_LT(difference, 0.02);  // of bf16, which holds the values of few formats exactly
    }
  }
}

TEST(QuantizedTarget, MayBeAGgufFile) {
  const auto& types = reference::GgufTypes();
  const reference::GgufType& q8 = *std::ranges::find(types, "Q8_0", &reference::GgufType::name);
  const auto in_q8 = [&](const std::string& name, const std::vector<float>& values) {
    return testing::InRandomBlocks(q8, name, values.size());
  };
  const auto in_f32 = [&](const std::string& name, const std::vector<float>& values) {
    const std::string bytes = in_q8(name, values).bytes;
    std::vector<float> decoded;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto* block = reinterpret_cast<const uint8_t*>(bytes.data()) + i / q8.block_values * q8.block_bytes;
      decoded.push_back(reference::GgufValue(q8.name, block, static_cast<int64_t>(i) % q8.block_values));
    }
    return testing::InF32(name, decoded);
  };
  const std::string directory = testing::SourcePath("tests/cases/models/llama");
  const TempDir files;
  files.Write("q8.gguf", testing::GgufTwin(directory, {.encode = in_q8}).Bytes());
  files.Write("f32.gguf", testing::GgufTwin(directory, {.encode = in_f32}).Bytes());
  const testing::DrafterSizes sizes = {.vocabulary = 304};
  for (const Kind& kind : {Kind{"EAGLE", "eagle", testing::MakeTinyEagle({.has_embedding = false, .sizes = sizes})},
                           Kind{"Medusa", "medusa", testing::MakeTinyMedusa({.num_lm_heads = 0})}}) {
    SCOPED_TRACE(kind.name);
    const auto plain = RowsOf(kind, files.path() + "/f32.gguf"), quantized = RowsOf(kind, files.path() + "/q8.gguf");
    EXPECT_LT(DifferenceOf(plain, quantized), 0.02);
  }
}

TEST(QuantizedDrafter, EveryOptionDoesWhatItSays) {
  const testing::TinyTarget target;
  const kernels::QuantizationOptions layers = {.weights = "int8"}, head = {.head = "int8"}, kv = {.kv_cache = "int8"};
  const Kind kinds[] = {
      {"EAGLE-3", "eagle3", testing::MakeTinyEagle3({.has_embedding = true})},
      {"EAGLE-3 that borrows", "eagle3", testing::MakeTinyEagle3({.has_head = false})},
      {"EAGLE", "eagle", testing::MakeTinyEagle({})},
      {"DSpark", "dflash", testing::MakeTinyDflash({.markov_rank = 16, .markov_matrix = "gate_proj"})},
      {"Medusa", "medusa", testing::MakeTinyMedusa({})},
      {"MLP speculator", "mlp_speculator", testing::MakeTinyMlp({})}};  // 48 inputs are not whole groups
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const std::vector<testing::Row> plain = RowsOf(kind, target.directory());
    for (const kernels::QuantizationOptions& options : {layers, head, kv}) {
      const double difference = DifferenceOf(plain, RowsOf(kind, target.directory(), options));
      EXPECT_LT(difference, 0.05) << options.weights << options.head << options.kv_cache;
      const bool has_kv = kind.method != "medusa" && kind.method != "mlp_speculator";
      if (options.kv_cache == "bf16" || has_kv) {
        EXPECT_GT(difference, 0) << options.weights << options.head << options.kv_cache;
      }
    }
  }
}

TEST(QuantizedDrafter, AQuantizedFileIsRefusedByName) {
  const testing::TinyTarget target;
  for (Kind kind : {Kind{"", "eagle3", testing::MakeTinyEagle3({})}, Kind{"", "eagle", testing::MakeTinyEagle({})},
                    Kind{"", "dflash", testing::MakeTinyDflash({})}}) {
    const TempDir dir;
    kind.drafter.config["quantization_config"] = {{"quant_method", "fp8"}};
    kind.drafter.Write(dir);
    EXPECT_THAT(LoadDrafter(kind.method, {.model_directory = dir.path(), .target_directory = target.directory()})
                    .status()
                    .ToString(),
                HasSubstr("quantization_config is not supported for drafters: the drafter is needed in bf16"));
  }
}

}  // namespace
}  // namespace foretoken::proposer
