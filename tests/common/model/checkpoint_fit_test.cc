// SPDX-License-Identifier: Apache-2.0
// Checkpoints that differ from their configuration. If this test fails, a model is served with a wrong head, or users
// do not learn of unread tensors.
#include "common/model/checkpoint_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/model/model_weights.h"
#include "common/model/weight_names.h"
#include "tests/testing/models/append_tensor.h"
#include "tests/testing/models/random_checkpoint.h"

namespace foretoken::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
