// SPDX-License-Identifier: Apache-2.0
// `foretoken quantize`. If these tests fail, a written checkpoint says other tokens than the flag of a server, or
// cannot be read, or something that it replaced is lost.
#include "client/offline/quantize_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/offline/offline_engine.h"
#include "client/offline/perplexity.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/model/config/config.h"
#include "common/model/model_weights.h"
#include "common/model/weight_digest.h"
#include "common/weights/checkpoint.h"
#include "common/weights/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/models/append_tensor.h"
#include "tests/testing/models/decode_by_hand.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/quantized_twins.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kText =
    "def add(a, b):\n    return a + b\n\nOnce upon a time there was a king who had three daughters, and the youngest "
    "of them was so fair that the sun itself wondered each time it shone upon her face.";

std::string DemoTarget() { return testing::SourcePath("deploy/demo/target"); }

absl::StatusOr<QuantizedSize> Quantize(const QuantizeOptions& options) {
  return QuantizeCheckpoint(options, [](int64_t, int64_t) {});
}

// Of the demo target and its copies.
std::vector<double> Logprobs(const std::string& path, const kernels::QuantizationOptions& quantization = {}) {
  auto model = LoadOffline({.path = path, .backend = {.quantization = quantization}});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const auto scores = ScoreText(*model, kText, /*window=*/32);
  EXPECT_TRUE(scores.ok()) << scores.status();
  std::vector<double> logprobs;
  for (const TokenScore& score : scores.value()) logprobs.push_back(score.logprob);
  return logprobs;
}

TEST(QuantizeCheckpoint, GivesTheLogitsThatTheFlagOfAServerGives) {
  const std::vector<double> plain = Logprobs(DemoTarget());
  struct Case {
    int bits;
    int64_t group_size;
    const char* flag;
  };
  for (const Case& c : {Case{4, 32, "int4"}, Case{4, 128, "int4"}, Case{8, 32, "int8"}, Case{8, 64, "int8"}}) {
    SCOPED_TRACE(absl::StrCat(c.bits, " bits in groups of ", c.group_size));
    const testing::TempDir dir;
    const auto size =
        Quantize({.input = DemoTarget(), .output = dir.path() + "/new", .bits = c.bits, .group_size = c.group_size});
    ASSERT_TRUE(size.ok()) << size.status();
    EXPECT_EQ(size->num_matrices, 56);
    EXPECT_LT(size->num_bytes_after, size->num_bytes_before);
    const std::vector<double> quantised = Logprobs(dir.path() + "/new");
    ASSERT_FALSE(quantised.empty());
    EXPECT_EQ(quantised, Logprobs(DemoTarget(), {.weights = c.flag, .group_size = static_cast<int>(c.group_size)}));
    EXPECT_NE(quantised, plain);
  }
}

std::string TinyModel(const std::string& name) { return testing::SourcePath("tests/cases/models/" + name); }

const testing::QuantizedFormat& Format(const std::string& name) {
  return *std::ranges::find(testing::QuantizedFormats(), name, &testing::QuantizedFormat::name);
}

std::vector<testing::Row> Logits(const std::string& directory, const kernels::QuantizationOptions& quantization = {}) {
  testing::LoadedModel model = testing::LoadModel(directory, {.quantization = quantization});
  const std::vector<int32_t> tokens = testing::RandomTokens(12, 100, 7);
  return testing::DecodeChain(model, {.tokens = tokens, .block_table = testing::Iota(0, 5)});
}

// A server rounds every value to bf16 before it makes integers.
TEST(QuantizeCheckpoint, GivesTheLogitsOfTheFlagForValuesThatBf16DoesNotHold) {
  const testing::QuantizedTwins fp8(Format("fp8_channel")), zeros(Format("packed_8_zeros"));
  for (const std::string& input :
       {TinyModel("qwen3-tied"), TinyModel("llama-yarn"), fp8.quantized.path(), zeros.quantized.path()}) {
    for (const int bits : {4, 8}) {
      SCOPED_TRACE(absl::StrCat(input, " ", bits));
      const testing::TempDir dir;
      const auto size = Quantize({.input = input, .output = dir.path(), .bits = bits});
      ASSERT_TRUE(size.ok()) << size.status();
      EXPECT_TRUE(testing::SameBits(Logits(dir.path()), Logits(input, {.weights = bits == 4 ? "int4" : "int8"})));
    }
  }
}

TEST(QuantizeCheckpoint, RefusesAMatrixWithAValueThatIsNotFinite) {
  const testing::QuantizedTwins twins(Format("packed_4_group"));
  const std::string path = twins.plain.path() + "/model.safetensors", name = "model.layers.1.mlp.down_proj";
  std::string file = base::ReadFile(path).value();
  const auto checkpoint = weights::Checkpoint::Open(twins.plain.path()).value();
  const auto bytes = checkpoint.FindStored(name + ".weight")->bytes;
  file.replace(file.find(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())) + 2 * 777, 2,
               "\xc0\x7f");
  const testing::TempDir broken, output;
  broken.Write("config.json", testing::QuantizedTwins::Config().dump());
  broken.Write("model.safetensors", file);
  const absl::Status status = Quantize({.input = broken.path(), .output = output.path()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr(name + ".weight: expected values that bf16 holds"));
}

TEST(QuantizeCheckpoint, SplitsFilesAndTheResultIsTheSame) {
  const testing::TempDir dir;
  const std::string one = dir.path() + "/one", many = dir.path() + "/many";
  ASSERT_TRUE(Quantize({.input = DemoTarget(), .output = one}).ok());
  ASSERT_TRUE(Quantize({.input = DemoTarget(), .output = many, .max_file_bytes = 1'000'000}).ok());
  EXPECT_FALSE(std::filesystem::exists(one + "/model.safetensors.index.json"));
  EXPECT_TRUE(std::filesystem::exists(many + "/model.safetensors.index.json"));
  EXPECT_TRUE(std::filesystem::exists(many + "/tokenizer.json"));
  EXPECT_EQ(Logprobs(one), Logprobs(many));
}

TEST(QuantizeCheckpoint, QuantisesTheHeadWithItsOwnBits) {
  const testing::TempDir model, dir;
  model.CopyFrom(DemoTarget());
  auto config = base::ReadJson(model.path() + "/config.json").value();
  config["tie_word_embeddings"] = false;
  model.Write("config.json", config.dump());
  const int64_t vocab_size = config["vocab_size"], hidden_size = config["hidden_size"];
  testing::AppendTensor(model.path(), "lm_head.weight", {vocab_size, hidden_size},
                        std::string(2 * vocab_size * hidden_size, '\x3c'));
  const auto size = Quantize({.input = model.path(), .output = dir.path(), .bits = 4, .head_bits = 8});
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(size->num_matrices, 57);
  const auto checkpoint = weights::Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const weights::StoredTensor* head = checkpoint->FindStored("lm_head.weight_packed");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->shape, (std::vector<int64_t>{vocab_size, hidden_size / 4}));
  EXPECT_EQ(checkpoint->FindStored("lm_head.weight"), nullptr);
  EXPECT_NE(checkpoint->FindStored("model.embed_tokens.weight"), nullptr);
  EXPECT_FALSE(Logprobs(dir.path()).empty());
}

// Engines that trust the configuration would use the embedding as the head.
TEST(QuantizeCheckpoint, SaysThatAHeadOfItsOwnIsNotTied) {
  const testing::TempDir model, dir;
  model.CopyFrom(DemoTarget());
  const auto config = base::ReadJson(model.path() + "/config.json").value();
  ASSERT_TRUE(config["tie_word_embeddings"]);
  const int64_t vocab_size = config["vocab_size"], hidden_size = config["hidden_size"];
  testing::AppendTensor(model.path(), "lm_head.weight", {vocab_size, hidden_size},
                        std::string(2 * vocab_size * hidden_size, '\x3c'));
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(Quantize({.input = model.path(), .output = dir.path()}).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("tied"));
  EXPECT_FALSE(base::ReadJson(dir.path() + "/config.json").value()["tie_word_embeddings"]);
}

TEST(QuantizeCheckpoint, QuantisesAQuantisedCheckpointAgain) {
  const testing::TempDir dir;
  const std::string eight = dir.path() + "/8", four = dir.path() + "/4";
  ASSERT_TRUE(Quantize({.input = DemoTarget(), .output = eight, .bits = 8}).ok());
  const auto size = Quantize({.input = eight, .output = four, .bits = 4});
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_LT(size->num_bytes_after, size->num_bytes_before);
  EXPECT_EQ(Logprobs(four).size(), Logprobs(DemoTarget()).size());
}

// Other readers would take its word for that of config.json.
TEST(QuantizeCheckpoint, LeavesNoDeclarationOfTheFirstFormBehind) {
  const testing::TempDir input, output;
  input.CopyFrom(DemoTarget());
  for (const char* name : {"quantize_config.json", "quant_config.json", "quantization_config.json"}) {
    input.Write(name, R"({"bits":4})");
  }
  input.Write("hf_quant_config.json", R"({"quantization":{"quant_algo":"FP8"}})");
  ASSERT_TRUE(Quantize({.input = input.path(), .output = output.path() + "/new", .bits = 4}).ok());
  for (const auto& entry : std::filesystem::directory_iterator(output.path() + "/new")) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("quant"))) << entry;
  }
  EXPECT_TRUE(std::filesystem::exists(output.path() + "/new/tokenizer.json"));
}

// As some writers of a model of text alone have it.
TEST(QuantizeCheckpoint, TakesATextConfigOfNull) {
  const testing::TempDir input, output;
  input.CopyFrom(TinyModel("llama-yarn"));
  auto config = nlohmann::json::parse(base::ReadFile(input.path() + "/config.json").value());
  config["text_config"] = nullptr;
  input.Write("config.json", config.dump());
  const auto size = Quantize({.input = input.path(), .output = output.path(), .bits = 4});
  EXPECT_TRUE(size.ok()) << size.status();
}

// Quantises both twins. Expects the same logits of both results, and a plain matrix of this name in the first.
template <typename Twins>
void ExpectPlain(const std::string& matrix, const Twins& twins, const testing::TempDir& quantized) {
  const testing::TempDir plain;
  ASSERT_TRUE(Quantize({.input = twins.quantized.path(), .output = quantized.path(), .bits = 8}).ok());
  ASSERT_TRUE(Quantize({.input = twins.plain.path(), .output = plain.path(), .bits = 8}).ok());
  EXPECT_TRUE(testing::SameBits(Logits(quantized.path()), Logits(plain.path())));
  const auto checkpoint = weights::Checkpoint::Open(quantized.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_NE(checkpoint->FindStored(matrix + ".weight"), nullptr);
  EXPECT_EQ(checkpoint->FindStored(matrix + ".qweight"), nullptr);
}

// What a quantised head means depends on a declaration, which the new checkpoint does not have.
TEST(QuantizeCheckpoint, KeepsTheValuesOfAQuantisedHead) {
  const testing::TempDir quantized;
  ExpectPlain("lm_head", testing::QuantizedTwins(Format("gptq_4_v2")), quantized);
  const std::string config = base::ReadFile(quantized.path() + "/config.json").value();
  EXPECT_THAT(nlohmann::json::parse(config)["quantization_config"]["ignore"], ::testing::Contains("lm_head"));
}

// A model with quantised routers, and the same with the bf16 of their values.
struct RouterTwins {
  testing::TempDir quantized, plain;

  explicit RouterTwins(const testing::QuantizedFormat& format) {
    const std::string model = TinyModel("qwen3-moe");
    auto config = base::ReadJson(model + "/config.json").value();
    const auto file = weights::SafetensorsFile::Open(model + "/model.safetensors").value();
    testing::RawTensors quantized_tensors;
    for (const auto& [name, tensor] : file.tensors()) {
      const auto* const bytes = reinterpret_cast<const char*>(tensor.bytes.data());
      quantized_tensors[name] = {
          .dtype = tensor.dtype, .shape = tensor.shape, .bytes = std::string(bytes, tensor.bytes.size())};
    }
    testing::RawTensors plain_tensors = quantized_tensors;
    testing::RandomValues random(1);
    for (int layer = 0; layer < config["num_hidden_layers"]; ++layer) {
      const std::string name = absl::StrCat("model.layers.", layer, ".mlp.gate");
      const std::vector<int64_t> shape = file.tensors().at(name + ".weight").shape;
      const testing::QuantizedLayer router = format.make(shape[0], shape[1], random);
      plain_tensors[name + ".weight"] = testing::AsBf16(router);
      quantized_tensors.erase(name + ".weight");
      testing::AddLayer(name, router.tensors, quantized_tensors);
    }
    plain.Write("config.json", config.dump());
    plain.Write("model.safetensors", testing::SafetensorsOf(plain_tensors));
    config["quantization_config"] = format.config;
    quantized.Write("config.json", config.dump());
    quantized.Write("model.safetensors", testing::SafetensorsOf(quantized_tensors));
  }
};

TEST(QuantizeCheckpoint, KeepsTheValuesOfAQuantisedRouter) {
  ExpectPlain("model.layers.0.mlp.gate", RouterTwins(Format("gptq_4_v2")), testing::TempDir());
}

// Which template a conversation with tools gets depends on a file in a folder.
TEST(QuantizeCheckpoint, CopiesFurtherChatTemplates) {
  const testing::TempDir input, output;
  input.CopyFrom(TinyModel("llama-yarn"));
  std::filesystem::create_directory(input.path() + "/additional_chat_templates");
  input.Write("additional_chat_templates/tool_use.jinja", "tools");
  input.Write("additional_chat_templates/notes.txt", "x");
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\n";  // what a clone has of a file that it left out
  input.Write("figure.png", pointer);
  std::filesystem::create_directory(input.path() + "/onnx");
  std::filesystem::create_symlink("nowhere", input.path() + "/dangling");
  const auto size = Quantize({.input = input.path(), .output = output.path()});
  ASSERT_TRUE(size.ok()) << size.status();
  const std::string folder = output.path() + "/additional_chat_templates";
  EXPECT_EQ(base::ReadFile(folder + "/tool_use.jinja").value(), "tools");
  EXPECT_FALSE(std::filesystem::exists(folder + "/notes.txt"));
  EXPECT_EQ(std::filesystem::file_size(output.path() + "/figure.png"), pointer.size());
  EXPECT_FALSE(std::filesystem::exists(output.path() + "/onnx"));
}

TEST(QuantizeCheckpoint, NamesAFileThatCannotBeLookedAtBeforeItWritesAny) {
  const testing::TempDir input, output;
  input.CopyFrom(TinyModel("llama-yarn"));
  std::filesystem::create_symlink("loop", input.path() + "/loop");
  const auto size = Quantize({.input = input.path(), .output = output.path() + "/new"});
  EXPECT_THAT(size.status().ToString(),
              HasSubstr("cannot look at " + input.path() + "/loop: Too many levels of symbolic links"));
  EXPECT_FALSE(std::filesystem::exists(output.path() + "/new"));
}

TEST(QuantizeCheckpoint, CanRunAgainAfterACancellation) {
  const testing::TempDir dir;
  // Every tensor has a file of its own, so some files are complete.
  QuantizeOptions options = {.input = TinyModel("llama-yarn"), .output = dir.path() + "/new", .max_file_bytes = 1};
  for (const int num_tensors : {3, 0}) {  // 0: all of them
    SCOPED_TRACE(num_tensors);
    Cancellation cancellation;
    options.cancellation = &cancellation;
    int num_written = 0;
    const auto status = QuantizeCheckpoint(options, [&](int64_t num_bytes_done, int64_t num_bytes) {
                          if (++num_written == num_tensors || num_bytes_done == num_bytes) cancellation.Cancel();
                        }).status();
    EXPECT_EQ(status, absl::CancelledError("interrupted"));
    EXPECT_TRUE(num_tensors == 0 || num_written == num_tensors) << num_written;
    EXPECT_FALSE(std::filesystem::exists(options.output));
  }
  options.cancellation = nullptr;
  EXPECT_TRUE(Quantize(options).ok());
}

TEST(QuantizeCheckpoint, CanRunAgainAfterTheDiskWasFull) {
  const testing::TempDir input, output;
  input.CopyFrom(TinyModel("llama-yarn"));
  std::filesystem::create_directory(input.path() + "/additional_chat_templates");
  input.Write("additional_chat_templates/tool_use.jinja", std::string(2'000'000, 'x'));
  const std::string existing = output.path(), created = output.path() + "/new";
  for (const auto& [max_bytes, name] : {std::pair(30'000, ".safetensors"), {1'000'000, "tool_use.jinja"}}) {
    for (const std::string& directory : {created, existing}) {
      const testing::FileSizeLimit limit(max_bytes);
      const auto size = Quantize({.input = input.path(), .output = directory, .max_file_bytes = 20'000});
      EXPECT_THAT(size.status().ToString(), HasSubstr(absl::StrCat(directory, "/")));
      EXPECT_THAT(size.status().ToString(), AllOf(HasSubstr(name), HasSubstr("File too large")));
      EXPECT_FALSE(std::filesystem::exists(created));
      EXPECT_TRUE(std::filesystem::is_empty(existing));
    }
  }
  const auto size = Quantize({.input = input.path(), .output = existing, .max_file_bytes = 20'000});
  EXPECT_TRUE(size.ok()) << size.status();
}

// A stored matrix of Phi-3 is three matrices of the layer, and a server digests each stored row once.
TEST(QuantizeCheckpoint, TheResultCanBeDigested) {
  for (const char* const name : {"phi3", "qwen3-moe", "glm4-moe"}) {
    const testing::TempDir dir;
    ASSERT_TRUE(Quantize({.input = TinyModel(name), .output = dir.path(), .bits = 4}).ok()) << name;
    const model::ModelConfig config = model::LoadModelConfig(dir.path()).value();
    const weights::Checkpoint checkpoint = weights::Checkpoint::Open(dir.path()).value();
    std::vector<std::string> digests;
    for (const int num_ranks : {1, 2}) {
      model::WeightDigest digest = model::WeightDigest::Make(config, checkpoint).value();
      model::WeightReader reader({.digest = &digest});
      const auto ranks = testing::MakeRanks({.num_ranks = num_ranks});
      ranks->Run([&](int rank) {
        const model::Shard shard = {.rank = rank, .num_ranks = num_ranks};
        EXPECT_TRUE(model::LoadWeights(config, checkpoint, ranks->backend(rank), reader, shard).ok());
      });
      digests.push_back(digest.Finish());
    }
    EXPECT_EQ(digests[0], digests[1]) << name;
  }
}

TEST(QuantizeCheckpoint, DeclaresWhatItLeftAsItIs) {
  for (const auto& [name, kept] : {std::pair("qwen3-moe", "model.layers.0.mlp.gate"), std::pair("phi3", "lm_head")}) {
    const testing::TempDir dir;
    ASSERT_TRUE(Quantize({.input = TinyModel(name), .output = dir.path(), .bits = 4}).ok()) << name;
    const std::string config = base::ReadFile(dir.path() + "/config.json").value();
    const auto ignored = nlohmann::json::parse(config)["quantization_config"]["ignore"];
    EXPECT_THAT(ignored, ::testing::Contains(kept)) << name;
    EXPECT_THAT(ignored, ::testing::Not(::testing::Contains(HasSubstr("q_proj")))) << name;
  }
}

TEST(QuantizeCheckpoint, RefusesByName) {
  const testing::TempDir dir;
  const std::string output = dir.path() + "/new";
  EXPECT_THAT(Quantize({.input = "/nowhere", .output = output}).status().ToString(), HasSubstr("/nowhere/config.json"));
  EXPECT_THAT(Quantize({.input = DemoTarget(), .output = output, .head_bits = 4}).status().ToString(),
              HasSubstr("--head_bits: its head is its embedding"));
  EXPECT_THAT(Quantize({.input = DemoTarget(), .output = output, .group_size = 96}).status().ToString(),
              HasSubstr("model.layers.0.self_attn.q_proj.weight: --group_size: expected a divisor of its"));
  EXPECT_THAT(Quantize({.input = "/nowhere/x.gguf", .output = output}).status().ToString(),
              HasSubstr("/nowhere/x.gguf: expected the directory of a checkpoint in safetensors, got a GGUF file"));
  EXPECT_FALSE(std::filesystem::exists(output));
  dir.Write("a_file", "x");
  EXPECT_THAT(Quantize({.input = DemoTarget(), .output = dir.path()}).status().ToString(),
              HasSubstr("expected a new or an empty directory"));
}

}  // namespace
}  // namespace foretoken::client
