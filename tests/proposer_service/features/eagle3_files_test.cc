// SPDX-License-Identifier: Apache-2.0
// Files of heads that do not fit are refused by name. If these tests fail, a head for another target drafts nonsense.
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/features/eagle3_config.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

using ::testing::HasSubstr;
using testing::TinyDrafter;

class Eagle3FilesTest : public ::testing::Test {
 protected:
  absl::StatusOr<Drafter> Load(const testing::TempDir& dir, const std::string& layers = "") const {
    return LoadDrafter("eagle3", {.model_directory = dir.path(),
                                  .target_directory = target_.directory(),
                                  .feature_layers = layers,
                                  .num_threads = 1,
                                  .kv_cache_mb = 1});
  }
  std::string ErrorOf(const TinyDrafter& head, const std::string& layers = "") const {
    const testing::TempDir dir;
    head.Write(dir);
    return std::string(Load(dir, layers).status().message());
  }

  testing::TinyTarget target_;
};

// t2d of a head that guesses ids 0, 5, 10, ...
testing::TinyTensor Marks() {
  testing::TinyTensor marks{
      .dtype = "BOOL", .shape = {testing::kTinyVocabulary}, .bytes = std::string(testing::kTinyVocabulary, 0)};
  for (size_t row = 0; row < 200; ++row) marks.bytes[5 * row] = 1;
  return marks;
}

struct BadHead {
  std::string error;
  std::function<void(TinyDrafter&)> change;
};

const std::vector<BadHead> kBadHeads = {
    {"config.json: architectures expects a class with eagle3 or peagle in its name, got [\"LlamaForCausalLM\"]",
     [](TinyDrafter& head) { head.config["architectures"] = {"LlamaForCausalLM"}; }},
    {"speculators_model_type expects eagle3 or peagle, got dflash",
     [](TinyDrafter& head) { head.config["speculators_model_type"] = "dflash"; }},
    {"model_type expects llama, mistral, qwen2 or qwen3, got gemma",
     [](TinyDrafter& head) { head.config["model_type"] = "gemma"; }},
    {"target_hidden_size expects the target's hidden size 64, got 128",
     [](TinyDrafter& head) { head.config["target_hidden_size"] = 128; }},
    {"vocab_size expects 1206 to 1216, as many as the target has, got 1000",
     [](TinyDrafter& head) { head.config["vocab_size"] = 1000; }},
    {"draft_vocab_size expects 1 to vocab_size 1216, got 0",
     [](TinyDrafter& head) { head.config["draft_vocab_size"] = 0; }},
    {"fc_norm expects false where norm_before_fc is true",
     [](TinyDrafter& head) { head.config["fc_norm"] = head.config["norm_before_fc"] = true; }},
    {"logit_scale expects a number above 0 that a float can hold, got 0",
     [](TinyDrafter& head) { head.config["logit_scale"] = 0; }},
    {"logit_scale expects a number above 0 that a float can hold, got 1e+39",
     [](TinyDrafter& head) { head.config["logit_scale"] = 1e39; }},
    {"expected only tensors that this method reads, got also fc.bias",
     [](TinyDrafter& head) { head.Add("fc.bias", {64}); }},
    {"got also midlayer.mlp.down_proj.bias, midlayer.mlp.gate_proj.bias, midlayer.mlp.up_proj.bias and 1 more",
     [](TinyDrafter& head) {
       for (const char* const role : {"down", "gate", "up"}) {
         head.Add(std::string("midlayer.mlp.") + role + "_proj.bias", {64});
       }
       head.Add("more.weight", {1});
     }},
    {"tensor layers.0.self_attn.k_proj.bias is missing",
     [](TinyDrafter& head) { head.Add("midlayer.self_attn.q_proj.bias", {64}); }},
    {"tensor t2d: expected to mark the 200 ids of d2t, got 201 marks, of which that of id 1 differs first",
     [](TinyDrafter& head) {
       head.tensors["t2d"] = Marks();
       head.tensors["t2d"].bytes[1] = 1;
     }},
    {"tensor t2d: expected BOOL or U8 [1216], got I64 [2]",
     [](TinyDrafter& head) {
       head.AddIntegers("t2d", {1, 1});
     }},
    {"quantization_config is not supported",
     [](TinyDrafter& head) {
       head.config["quantization_config"] = {{"quant_method", "fp8"}};
     }},
    {"expected S_0 to S_6, got S_7",
     [](TinyDrafter& head) {
       head.config["eagle_aux_hidden_state_layer_ids"] = {1, 2, 7};
     }},
    {"by eagle_config.eagle_aux_hidden_state_layer_ids, plus one: expected S_0 to S_6, got S_7",
     [](TinyDrafter& head) {
       head.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {1, 2, 6};
     }},
    {"tensor fc.weight: expected 128 inputs, for the hidden states S_1, S_2, by eagle_aux_hidden_state_layer_ids, "
     "got 192",
     [](TinyDrafter& head) {
       head.config["eagle_aux_hidden_state_layer_ids"] = {1, 2};
     }},
    {"tensor layers.0.self_attn.q_proj.weight: expected 2 hidden_size = 128 inputs, as EAGLE-3 has, got 64, as in a "
     "head of EAGLE-1 or -2",
     [](TinyDrafter& head) {
       head.Add("midlayer.self_attn.q_proj.weight", {64, 64});
     }},
    {"tensor layers.0.hidden_norm.weight is missing",
     [](TinyDrafter& head) { head.tensors.erase("midlayer.hidden_norm.weight"); }},
    {"tensor lm_head.weight: expected shape [200, 64], got [201, 64]",
     [](TinyDrafter& head) {
       head.Add("lm_head.weight", {201, 64});
     }},
    {"tensor d2t [200] is missing", [](TinyDrafter& head) { head.tensors.erase("d2t"); }},
    {"tensor d2t: expected I64 [200], got I64 [3]",
     [](TinyDrafter& head) {
       head.AddIntegers("d2t", {0, 0, 0});
     }},
    {"tensor d2t: expected increasing ids from 0 to 1215, got the offset -1 at row 1 after id 0",
     [](TinyDrafter& head) {
       std::vector<int64_t> offsets(200, 0);
       offsets[1] = -1;
       head.AddIntegers("d2t", offsets);
     }},
    {"got the offset 9223372036854775807 at row 0",
     [](TinyDrafter& head) { head.AddIntegers("d2t", std::vector<int64_t>(200, INT64_MAX)); }},
    {"mask_token_id is missing; so are ptd_token_id and pard_token",
     [](TinyDrafter& head) {
       head.Add("mask_hidden", {1, 1, 192});
     }},
    {"ptd_token_id expects 0 to 1215, got 1216",
     [](TinyDrafter& head) {
       head.Add("mask_hidden", {1, 192});
       head.config["ptd_token_id"] = 1216;
     }},
    {"speculative_tokens expects 1 to 16, got 65",
     [](TinyDrafter& head) {
       head.Add("mask_hidden", {192});
       head.config["mask_token_id"] = 5;
       head.config["speculators_config"]["proposal_methods"] = {{{"speculative_tokens", 65}}};
     }},
    {"speculative_tokens expects 1 to 16, got \"many\"",
     [](TinyDrafter& head) {
       head.Add("mask_hidden", {192});
       head.config["mask_token_id"] = 5;
       head.config["speculators_config"]["proposal_methods"] = {{{"speculative_tokens", "many"}}};
     }},
    {"tensor mask_hidden: expected shape [192], got [1, 1, 128]",
     [](TinyDrafter& head) {
       head.Add("mask_hidden", {1, 1, 128});
     }},
    {"expected an EAGLE-3 head, got tensor hidden_norm.weight of DFlash, which --method=dflash reads",
     [](TinyDrafter& head) { head.Add("hidden_norm.weight", {64}); }},
    {"tensors layers.0.hidden_norm.weight and midlayer.hidden_norm.weight are both layers.0.hidden_norm.weight",
     [](TinyDrafter& head) { head.Add("layers.0.hidden_norm.weight", {64}); }},
};

TEST_F(Eagle3FilesTest, AHeadThatDoesNotFitIsRefusedByName) {
  for (const BadHead& bad : kBadHeads) {
    TinyDrafter head = testing::MakeTinyEagle3({});
    bad.change(head);
    EXPECT_THAT(ErrorOf(head), HasSubstr(bad.error));
  }
  EXPECT_THAT(ErrorOf(testing::MakeTinyEagle3({}), "1,x"), HasSubstr("feature_layers: expected whole numbers"));
  EXPECT_THAT(ErrorOf(testing::MakeTinyEagle3({}), "1,2,-1"), HasSubstr("expected S_0 to S_6, got S_-1"));
}

// Publishers forget keys. What the file holds decides, because a head without it computes something else.
TEST_F(Eagle3FilesTest, TensorsDecideWhatTheConfigurationLeavesOut) {
  using Norm = speculation::FeatureProjection::Norm;
  const auto norm_of = [&](const testing::TinyEagle3& form) {
    TinyDrafter head = testing::MakeTinyEagle3(form);
    head.tensors["t2d"] = Marks();
    for (const char* const key : {"norm_before_fc", "fc_norm"}) head.config.erase(key);
    const testing::TempDir dir;
    head.Write(dir);
    return Load(dir).value().description.features->projection->norm;
  };
  EXPECT_EQ(norm_of({}), Norm::kNone);
  EXPECT_EQ(norm_of({.norm_before_fc = true}), Norm::kWhole);
  EXPECT_EQ(norm_of({.fc_norm = true}), Norm::kPerLayer);

  TinyDrafter head = testing::MakeTinyEagle3({});
  const auto first_row = [&] {
    const testing::TempDir dir;
    head.Write(dir);
    return testing::RunDraftChain(*Load(dir).value().model, {3},
                                  testing::RandomFeatures(1, testing::kTinyHidden, 9))[0];
  };
  const testing::Row without = first_row();
  for (const auto& [role, size] : {std::pair("q", 64), {"k", 32}, {"v", 32}}) {
    head.Add(std::string("midlayer.self_attn.") + role + "_proj.bias", {size});
  }
  EXPECT_NE(first_row(), without);
}

// YaRN's angles follow from the length that the head was trained with. Only its contexts are as long as the target's.
TEST_F(Eagle3FilesTest, ScaledAnglesFollowFromTheHeadsOwnLength) {
  nlohmann::json config = testing::MakeTinyEagle3({}).config;
  config["max_position_embeddings"] = 2048;
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"original_max_position_embeddings", 512}};
  const TargetSizes target = {
      .hidden_size = 64, .num_layers = 6, .vocab_size = 1216, .num_tokens = 1206, .max_positions = 8192};
  const auto read = [&] { return ReadEagle3Config(config.dump(), "config.json", target).value().block; };
  EXPECT_EQ(std::get<model::YarnScaling>(read().rope.scaling).factor, 4);
  EXPECT_EQ(read().max_position_embeddings, 8192);
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4}};
  EXPECT_EQ(std::get<model::YarnScaling>(read().rope.scaling).original_max_positions, 2048);
}

TEST_F(Eagle3FilesTest, LayersMayStandWithPlusSigns) {
  const testing::TempDir dir;
  testing::MakeTinyEagle3({}).Write(dir);
  const std::vector<int32_t> layers = {1, 2, 6};
  EXPECT_EQ(Load(dir, "1+2+6").value().description.features->layers, layers);
  EXPECT_EQ(Load(dir, "1,2,6").value().description.features->layers, layers);
}

TEST_F(Eagle3FilesTest, LayersAreRefusedWhereTheHeadReadsTheLastHiddenState) {
  TinyDrafter head = testing::MakeTinyEagle3({});
  head.config["eagle_config"]["use_aux_hidden_state"] = false;
  EXPECT_THAT(ErrorOf(head, "1,2,3"), HasSubstr("use_aux_hidden_state expects true where the option feature_layers"));
}

TEST_F(Eagle3FilesTest, PicklesAreRefusedWithAWayOut) {
  const testing::TempDir dir;
  dir.Write("config.json", testing::MakeTinyEagle3({}).config.dump());
  dir.Write("pytorch_model.bin", "PK");
  EXPECT_THAT(
      std::string(Load(dir).status().message()),
      ::testing::AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("A pickle can run code"),
                       HasSubstr("torch.load(\"pytorch_model.bin\", map_location=\"cpu\", weights_only=True)")));
}

TEST_F(Eagle3FilesTest, AWrongTargetIsNamed) {
  const testing::TempDir dir, empty;
  testing::MakeTinyEagle3({}).Write(dir);
  const absl::StatusOr<Drafter> drafter = LoadDrafter(
      "eagle3", {.model_directory = dir.path(), .target_directory = empty.path(), .num_threads = 1, .kv_cache_mb = 1});
  EXPECT_THAT(std::string(drafter.status().message()),
              ::testing::AllOf(HasSubstr("target: "), HasSubstr("config.json")));
  EXPECT_THAT(std::string(ValidateFeatureDraft("eagle3", {.model_directory = dir.path()}).message()),
              HasSubstr("target: expected the directory"));
}

}  // namespace
}  // namespace foretoken::proposer
