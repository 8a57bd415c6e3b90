// SPDX-License-Identifier: Apache-2.0
// Checkpoints that differ from their configuration. If this test fails, a model is served with a wrong head, or users
// do not learn of unread tensors.
#include "common/model/checkpoint_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mapped_file.h"
#include "common/model/model_weights.h"
#include "common/model/weight_names.h"
#include "nlohmann/json.hpp"
#include "tests/testing/models/append_tensor.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/models/safetensors_writer.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::model {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;

struct Fitted {
  ModelConfig config;
  std::vector<std::string> notes;
};

Fitted Fit(const std::string& directory) {
  Fitted fitted = {.config = LoadModelConfig(directory).value(), .notes = {}};
  fitted.notes = FitToCheckpoint(weights::Checkpoint::Open(directory).value(), fitted.config).value();
  return fitted;
}

std::string EmbeddingBytes(const std::string& directory) {
  const ModelConfig config = LoadModelConfig(directory).value();
  const WeightName embed = NameWeights(config).embed;
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
  const kernels::ConstTensorView view = checkpoint.Find(embed.name, embed.shape).value();
  return {static_cast<const char*>(view.data), view.num_bytes()};
}

TEST(FitToCheckpoint, ReturnsNoNotesIfEverythingFits) {
  for (const char* name : testing::kRandomCheckpoints) {
    const testing::RandomCheckpoint files(name);
    const Fitted fitted = Fit(files.directory());
    EXPECT_THAT(fitted.notes, IsEmpty()) << name;
    EXPECT_EQ(fitted.config, LoadModelConfig(files.directory()).value());
  }
}

// Writes the tiny Gemma 3 as the text part of a multimodal model, with tensors that belong to images.
void WriteAsTextPart(const std::string& body, const TempDir& dir) {
  const std::string from = testing::SourcePath("tests/cases/models/gemma3");
  json text = json::parse(base::ReadFile(from + "/config.json").value());
  for (const char* name : {"architectures", "eos_token_id", "dtype"}) text.erase(name);
  dir.Write("config.json", json{{"architectures", {"Gemma3ForConditionalGeneration"}},
                                {"model_type", "gemma3"},
                                {"eos_token_id", {1, 106}},
                                {"text_config", text}}
                               .dump());
  const std::string file = base::ReadFile(from + "/model.safetensors").value();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const json header = json::parse(file.substr(sizeof(header_bytes), header_bytes));
  json renamed;
  for (const auto& [name, tensor] : header.items()) {
    renamed[name.starts_with("model.") ? body + name.substr(sizeof("model.") - 1) : name] = tensor;
  }
  dir.Write("model.safetensors",
            testing::SafetensorsBytes(renamed.dump(), 0) + file.substr(sizeof(header_bytes) + header_bytes));
  testing::AppendTensor(dir.path(), "vision_tower.patch", {2, 1}, "abcd");
  testing::AppendTensor(dir.path(), "model.multi_modal_projector.norm", {2, 1}, "abcd");
}

// As transformers 4 and 5 write it.
TEST(FitToCheckpoint, FindsTheTextPartOfAMultimodalModel) {
  const ModelConfig plain = LoadModelConfig(testing::SourcePath("tests/cases/models/gemma3")).value();
  for (const auto& [body, head] :
       {std::pair("language_model.model.", "language_model."), std::pair("model.language_model.", "")}) {
    const TempDir dir;
    WriteAsTextPart(body, dir);
    const Fitted fitted = Fit(dir.path());
    EXPECT_THAT(fitted.notes, IsEmpty());
    EXPECT_EQ(fitted.config.prefixes, (TensorPrefixes{body, head}));
    EXPECT_EQ(fitted.config.eos_token_ids, (std::vector<int64_t>{1, 106}));
    ModelConfig same = fitted.config;
    same.is_text_part = false;
    same.prefixes = {};
    same.eos_token_ids = plain.eos_token_ids;
    same.dtype = plain.dtype;
    EXPECT_EQ(same, plain);
    const auto ranks = testing::MakeRanks({.num_threads = 1});
    WeightReader reader({});
    EXPECT_TRUE(
        LoadWeights(fitted.config, weights::Checkpoint::Open(dir.path()).value(), ranks->backend(0), reader).ok());
  }
}

// What a published Gemma 3 says about itself, and nothing more.
TEST(ModelConfig, TakesTheSizesThatGemma3LeavesOut) {
  const ModelConfig config = ParseModelConfig(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": [1, 106],
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                    "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                    "sliding_window": 1024},
    "vision_config": {"hidden_size": 1152}, "torch_dtype": "bfloat16"})",
                                              "config.json")
                                 .value();
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_EQ(config.rope, (RopeConfig{.theta = 1e6, .scaling = LinearScaling{.factor = 8}}));
  EXPECT_EQ(config.sliding_rope, (RopeConfig{.theta = 10000, .scaling = {}}));
  EXPECT_EQ(config.sliding_windows[4], 1024);
  EXPECT_EQ(config.sliding_windows[5], std::nullopt);
  EXPECT_EQ(config.embedding_multiplier, 50.5);  // the root of 2560 is 50.596; bf16 has steps of 0.25 there
}

TEST(FitToCheckpoint, UntiesAHeadThatTheCheckpointHoldsWithOtherValues) {
  const testing::RandomCheckpoint files("llama_tied");
  std::string head = EmbeddingBytes(files.directory());
  head.back() = static_cast<char>(head.back() ^ 1);
  testing::AppendTensor(files.directory(), "lm_head.weight", {301, 256}, head);
  const Fitted fitted = Fit(files.directory());
  EXPECT_FALSE(fitted.config.tie_word_embeddings);
  EXPECT_THAT(fitted.notes, ElementsAre(AllOf(HasSubstr(files.directory()), HasSubstr("ties lm_head.weight"),
                                              HasSubstr("with different values: they are not tied"))));
}

TEST(FitToCheckpoint, KeepsAHeadTiedWhoseCopyIsEqual) {
  const testing::RandomCheckpoint files("llama_tied");
  testing::AppendTensor(files.directory(), "lm_head.weight", {301, 256}, EmbeddingBytes(files.directory()));
  const Fitted fitted = Fit(files.directory());
  EXPECT_TRUE(fitted.config.tie_word_embeddings);
  EXPECT_THAT(fitted.notes, IsEmpty());
}

TEST(FitToCheckpoint, RefusesAHeadOfAnotherShape) {
  const testing::RandomCheckpoint files("llama_tied");
  testing::AppendTensor(files.directory(), "lm_head.weight", {256, 301}, EmbeddingBytes(files.directory()));
  ModelConfig config = LoadModelConfig(files.directory()).value();
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(files.directory()).value();
  EXPECT_THAT(FitToCheckpoint(checkpoint, config).status().ToString(),
              HasSubstr("lm_head.weight: expected shape [301, 256], got [256, 301]"));
}

// They would hide tensors that the model should read.
TEST(FitToCheckpoint, LeavesOutTheLayersForMultiTokenPrediction) {
  const testing::RandomCheckpoint files("llama");
  json config = json::parse(base::ReadFile(files.directory() + "/config.json").value());
  config["num_nextn_predict_layers"] = 2;
  std::ofstream(files.directory() + "/config.json") << config.dump();
  for (const char* name : {"model.layers.3.eh_proj.weight", "model.layers.4.mlp.up_proj.weight", "mtp.norm.weight",
                           "model.layers.5.x", "model.layers.2.x", "vision_tower.x"}) {
    testing::AppendTensor(files.directory(), name, {1}, "ab");
  }
  EXPECT_THAT(Fit(files.directory()).notes,
              ElementsAre(::testing::EndsWith(
                  "does not use 3 of the checkpoint's tensors: model.layers.2.x, model.layers.5.x, vision_tower.x")));
}

TEST(FitToCheckpoint, CountsTensorsThatAreNotUsedAndNamesTheFirst) {
  const testing::RandomCheckpoint files("llama");
  testing::AppendTensor(files.directory(), "model.layers.0.self_attn.rotary_emb.inv_freq", {1}, "ab");
  testing::AppendTensor(files.directory(), "base.lora_A\n", {1}, "ab");
  EXPECT_THAT(Fit(files.directory()).notes, ElementsAre(AllOf(HasSubstr("the model does not use 1 of the checkpoint's"),
                                                              ::testing::EndsWith("tensors: base.lora_A\\n"))));
  testing::AppendTensor(files.directory(), std::string(1000, 'x'), {1}, "ab");
  testing::AppendTensor(files.directory(), "model.layers.3.mlp.up_proj.weight", {1}, "ab");
  testing::AppendTensor(files.directory(), "z", {1}, "ab");
  EXPECT_THAT(Fit(files.directory()).notes,
              ElementsAre(AllOf(HasSubstr("does not use 4 of the"),
                                ::testing::EndsWith("base.lora_A\\n, model.layers.3.mlp.up_proj.weight, " +
                                                    std::string(80, 'x') + ", ..."))));
}

}  // namespace
}  // namespace foretoken::model
