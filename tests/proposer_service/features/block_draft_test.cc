// SPDX-License-Identifier: Apache-2.0
// Drafters that guess a block in one pass compute what their definitions say, for every form and layout of their files,
// and their trees grow without passes of their own. If these tests fail, they draft at a fraction of their acceptance,
// and nothing else shows it.
#include "proposer_service/features/block_draft.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/draft/draft_forest.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/reference/drafters.h"
#include "tests/testing/models/tiny_drafters.h"

namespace foretoken::proposer {
namespace {

using reference::Doubles;
using reference::Vector;
using ::testing::HasSubstr;
using testing::kTinyHidden;
using testing::kTinyMask;
using testing::kTinyVocabulary;
using testing::RandomFeatures;
using testing::RunDraftChain;
using testing::TinyDflash;
using testing::TinyDrafter;
using testing::TinyEagle3;

// Up to a dozen roundings to bf16 come before the logits, each of a relative 2^-9.
constexpr double kBlockTolerance = 12 * 0x1p-9;

absl::StatusOr<Drafter> LoadBlockDraft(const std::string& method, const std::string& model, const std::string& target) {
  return LoadDrafter(method,
                     {.model_directory = model, .target_directory = target, .num_threads = 2, .kv_cache_mb = 1});
}

// The largest difference, as a share of the largest logit. Row i of the draft vocabulary has the target's id stride *
// i; all other ids must have minus infinity.
double Difference(const testing::Row& row, const Vector& expected, size_t stride) {
  double largest = 0, size = 0;
  for (size_t id = 0; id < row.size(); ++id) {
    if (id % stride == 0 && id / stride < expected.size()) {
      largest = std::max(largest, std::abs(row[id] - expected[id / stride]));
      size = std::max(size, std::abs(expected[id / stride]));
    } else {
      EXPECT_EQ(row[id], -std::numeric_limits<float>::infinity()) << id;
    }
  }
  return largest / size;
}

struct Context {
  std::vector<int32_t> chain;  // the first rows have features
  std::vector<std::vector<uint16_t>> features;
};
Context ContextOf(size_t num_given, size_t num_guesses) {
  Context context{.features = RandomFeatures(num_given, kTinyHidden, 9)};
  for (size_t i = 0; i < num_given + num_guesses - 1; ++i) {
    context.chain.push_back(static_cast<int32_t>((i * 337 + 3) % kTinyVocabulary));
  }
  return context;
}

class DflashFormTest : public ::testing::TestWithParam<TinyDflash> {};

TEST_P(DflashFormTest, ComputesTheDefinition) {
  const TinyDflash& form = GetParam();
  const testing::TinyTarget target;
  const testing::TempDir dir;
  testing::MakeTinyDflash(form).Write(dir);
  const absl::StatusOr<Drafter> drafter = LoadBlockDraft("dflash", dir.path(), target.directory());
  ASSERT_TRUE(drafter.ok()) << drafter.status();
  EXPECT_EQ(drafter->description.features->layers, std::vector<int32_t>({1, 3, 6}));

  const reference::Tensors tensors = reference::ReadTensors(dir.path() + "/model.safetensors");
  EXPECT_EQ(Doubles(drafter->description.features->projection->weight), tensors.at("fc.weight"));
  reference::Tensors of_target = reference::ReadTensors(target.directory() + "/model.safetensors");
  const Vector& embedding =
      form.has_own_ends ? tensors.at("embed_tokens.weight") : of_target.at("model.embed_tokens.weight");
  const Vector& head = form.has_own_ends ? tensors.at("lm_head.weight") : of_target.at("lm_head.weight");
  const reference::DflashShape shape = {
      .hidden_size = kTinyHidden,
      .num_heads = 4,
      .num_kv_heads = 2,
      .head_dim = 16,
      .num_layers = 2,
      .is_causal = {form.is_causal.value_or(form.uses_swa), form.is_causal.value_or(form.window.has_value())},
      .windows = {form.uses_swa ? form.window : std::nullopt, form.window},
      .windows_from_context = form.layout == testing::Layout::kSpeculators};
  const size_t first_guess = form.is_dspark() ? 0 : 1;
  const size_t num_guesses = static_cast<size_t>(form.block_size) - first_guess;
  ASSERT_EQ(drafter->model->limits().max_steps, num_guesses);

  reference::DflashShape other_window = shape;
  for (std::optional<int64_t>& window : other_window.windows) {
    if (window.has_value()) ++*window;
  }
  double other_difference = 0;

  constexpr size_t kNumGiven = 18;  // over more than one block of K/V
  const Context context = ContextOf(kNumGiven, num_guesses);
  const std::vector<testing::Row> rows = RunDraftChain(*drafter->model, context.chain, context.features);
  ASSERT_EQ(rows.size(), context.chain.size());
  std::vector<Vector> features;
  for (size_t root = 0; root < kNumGiven; ++root) {
    features.push_back(Doubles(context.features[root]));
    std::vector<int64_t> block(static_cast<size_t>(form.block_size), kTinyMask);
    block[0] = context.chain[root];
    const std::vector<Vector> outputs = reference::RunDflash(shape, tensors, embedding, features, block);
    const size_t last_step = root + 1 < kNumGiven ? 0 : num_guesses - 1;
    Vector state;
    for (size_t step = 0; step <= last_step; ++step) {
      const Vector expected =
          reference::DflashLogits(tensors, head, outputs[first_guess + step], context.chain[root + step], state);
      EXPECT_LT(Difference(rows[root + step], expected, form.has_own_ends ? 5 : 1), kBlockTolerance)
          << "root " << root << ", step " << step;
      if (!form.window.has_value()) continue;
      const Vector other = reference::RunDflash(other_window, tensors, embedding, features, block)[first_guess + step];
      Vector unused;
      const Vector logits = reference::DflashLogits(tensors, head, other, context.chain[root + step], unused);
      other_difference = std::max(other_difference, Difference(rows[root + step], logits, form.has_own_ends ? 5 : 1));
    }
    if (!form.is_dspark() || root + 1 < kNumGiven) continue;
    ASSERT_EQ(drafter->model->confidences().size(), 1) << "of the last row alone";
    EXPECT_NEAR(drafter->model->confidences()[0],
                reference::DsparkConfidence(tensors, outputs[first_guess + last_step], context.chain.back()), 0.02);
  }
  EXPECT_EQ(drafter->model->confidences().empty(), !form.is_dspark());
  if (form.window.has_value()) {
    EXPECT_GT(other_difference, kBlockTolerance) << "a window that is one too large shows";
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, DflashFormTest,
                         ::testing::Values(TinyDflash{}, TinyDflash{.block_size = 8, .is_causal = true},
                                           TinyDflash{.window = 9}, TinyDflash{.is_causal = false, .window = 9},
                                           TinyDflash{.block_size = 8, .window = 3}, TinyDflash{.has_sinks = true},
                                           TinyDflash{.window = 11, .uses_swa = true, .has_sinks = true},
                                           TinyDflash{.layout = testing::Layout::kSpeculators, .window = 6},
                                           TinyDflash{.markov_rank = 16, .markov_matrix = "gate_proj"},
                                           TinyDflash{.markov_rank = 16, .markov_matrix = "joint_proj"},
                                           TinyDflash{.layout = testing::Layout::kSpeculators, .has_own_ends = true},
                                           TinyDflash{.markov_rank = 16},
                                           TinyDflash{.markov_rank = 24, .has_own_ends = true},
                                           TinyDflash{.has_confidence = true}));

class PEagleFormTest : public ::testing::TestWithParam<TinyEagle3> {};

TEST_P(PEagleFormTest, ComputesTheDefinition) {
  const TinyEagle3& form = GetParam();
  const testing::TinyTarget target;
  const testing::TempDir dir;
  testing::MakeTinyPEagle(form).Write(dir);
  const absl::StatusOr<Drafter> drafter = LoadBlockDraft("eagle3", dir.path(), target.directory());
  ASSERT_TRUE(drafter.ok()) << drafter.status();
  const auto num_guesses = static_cast<size_t>(drafter->model->limits().max_steps);
  ASSERT_EQ(num_guesses, form.layout == testing::Layout::kSpeculators ? 5 : 8);

  reference::Tensors tensors = reference::ReadTensors(dir.path() + "/model.safetensors");
  const Vector mask_state = tensors.at("mask_hidden");
  const reference::Eagle definition(
      {.hidden_size = kTinyHidden,
       .num_heads = 4,
       .num_kv_heads = 2,
       .head_dim = 16,
       .norm_before_residual = form.norm_before_residual,
       .block = form.layout == testing::Layout::kSpeculators ? "layers.0." : "midlayer."},
      tensors, reference::ReadTensors(target.directory() + "/model.safetensors").at("model.embed_tokens.weight"));
  const Vector mask_feature = definition.Feature(mask_state);

  constexpr size_t kNumGiven = 4;
  const Context context = ContextOf(kNumGiven, num_guesses);
  const std::vector<testing::Row> rows = RunDraftChain(*drafter->model, context.chain, context.features);
  std::vector<reference::DraftInput> inputs;
  for (size_t i = 0; i < kNumGiven; ++i) {
    inputs.push_back({.token_id = context.chain[i], .feature = Doubles(context.features[i])});
  }
  for (size_t i = 1; i < num_guesses; ++i) inputs.push_back({.token_id = kTinyMask, .feature = mask_feature});
  const std::vector<reference::DraftedRow> expected = definition.Run(inputs);
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_LT(Difference(rows[i], expected[i].logits, 5), kBlockTolerance) << "row " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, PEagleFormTest,
                         ::testing::Values(TinyEagle3{},
                                           TinyEagle3{.layout = testing::Layout::kModelOpt, .fc_norm = true},
                                           TinyEagle3{.layout = testing::Layout::kSpeculators,
                                                      .norm_before_fc = true,
                                                      .norm_before_residual = true,
                                                      .has_qk_norm = true}));

struct BadDflash {
  std::string error;
  std::function<void(TinyDrafter&)> change;
};
const BadDflash kBadDflashes[] = {
    {"block_size expects 2 to 64, got 1", [](TinyDrafter& it) { it.config["dflash_config"]["block_size"] = 1; }},
    {"block_size expects 2 to 64, got 65", [](TinyDrafter& it) { it.config["dflash_config"]["block_size"] = 65; }},
    {"mask_token_id is missing", [](TinyDrafter& it) { it.config["dflash_config"].erase("mask_token_id"); }},
    {"mask_token_id expects 0 to 1215, got 1216",
     [](TinyDrafter& it) { it.config["dflash_config"]["mask_token_id"] = 1216; }},
    {"swa_window_size is missing, and use_swa is true",
     [](TinyDrafter& it) { it.config["dflash_config"]["use_swa"] = true; }},
    {"swa_window_size expects 1 to 1073741824, got 0",
     [](TinyDrafter& it) {
       it.config["dflash_config"].update({{"use_swa", true}, {"swa_window_size", 0}});
     }},
    {"layer_types says sliding_attention for layer 1, which contradicts sliding_window",
     [](TinyDrafter& it) {
       it.config["sliding_window"] = nullptr;
       it.config["layer_types"] = {"full_attention", "sliding_attention"};
     }},
    {"tensor layers.0.self_attn.attention_sink_bias is missing",
     [](TinyDrafter& it) { it.config["dflash_config"]["attention_sink_bias"] = true; }},
    {"tensor layers.0.self_attn.attention_sink_bias: expected shape [4], got [5]",
     [](TinyDrafter& it) { it.Add("layers.0.self_attn.attention_sink_bias", {5}); }},
    {"by dflash_config.target_layer_ids, plus one: expected S_0 to S_6, got S_7",
     [](TinyDrafter& it) {
       it.config["dflash_config"]["target_layer_ids"] = {0, 2, 6};
     }},
    {"tensor fc.weight: expected 128 inputs, for the hidden states S_2, S_4, by target_layer_ids, plus one, got 192",
     [](TinyDrafter& it) {
       it.config["dflash_config"].erase("target_layer_ids");
       it.config["target_layer_ids"] = {1, 3};
     }},
    {"num_target_layers expects 6, as the target has, got 36",
     [](TinyDrafter& it) { it.config["num_target_layers"] = 36; }},
    {"num_target_layers expects 6, as the target has, got 5",
     [](TinyDrafter& it) { it.config["dflash_config"]["num_target_layers"] = 5; }},
    {"markov_rank expects 0 to 65536, got -1", [](TinyDrafter& it) { it.config["markov_rank"] = -1; }},
    {"tensor markov_head.markov_w1.weight is missing", [](TinyDrafter& it) { it.config["markov_rank"] = 16; }},
    {"vocab_size expects 1206 to 1216", [](TinyDrafter& it) { it.config["vocab_size"] = 1000; }},
    {"tensor hidden_norm.weight is missing", [](TinyDrafter& it) { it.tensors.erase("hidden_norm.weight"); }},
    {"got tensor layers.0.attention_conv.base_kernel of DFlash 2",
     [](TinyDrafter& it) {
       it.Add("layers.0.attention_conv.base_kernel", {2, 2, 64});
     }},
    {"got also markov_head.gate_proj.weight",
     [](TinyDrafter& it) {
       it.Add("markov_head.gate_proj.weight", {16, 80});
     }},
    {"markov_head_type expects vanilla, gated or rnn, got lstm",
     [](TinyDrafter& it) { it.config["markov_head_type"] = "lstm"; }},
    {"tensor markov_head.joint_proj.weight is missing",
     [](TinyDrafter& it) {
       it.Add("markov_head.markov_w1.weight", {kTinyVocabulary, 16});
       it.Add("markov_head.markov_w2.weight", {kTinyVocabulary, 16});
       it.config["markov_head_type"] = "rnn";
     }},
    {"tensor markov_head.joint_proj.weight: expected shape [48, 96], got [48, 80]",
     [](TinyDrafter& it) {
       it.Add("markov_head.markov_w1.weight", {kTinyVocabulary, 16});
       it.Add("markov_head.markov_w2.weight", {kTinyVocabulary, 16});
       it.Add("markov_head.joint_proj.weight", {48, 80});
     }},
    {"tensor markov_head.gate_proj.bias is missing",
     [](TinyDrafter& it) {
       it.Add("markov_head.markov_w1.weight", {kTinyVocabulary, 16});
       it.Add("markov_head.markov_w2.weight", {kTinyVocabulary, 16});
       it.Add("markov_head.gate_proj.weight", {16, 80});
     }},
    {"tensor confidence_head.proj.weight: expected shape [1, 80], got [1, 81]",
     [](TinyDrafter& it) {
       it.Add("markov_head.markov_w1.weight", {kTinyVocabulary, 16});
       it.Add("markov_head.markov_w2.weight", {kTinyVocabulary, 16});
       it.Add("confidence_head.proj.weight", {1, 81});
     }},
    {"tensor confidence_head.proj.bias is missing",
     [](TinyDrafter& it) {
       it.Add("markov_head.markov_w1.weight", {kTinyVocabulary, 16});
       it.Add("markov_head.markov_w2.weight", {kTinyVocabulary, 16});
       it.Add("confidence_head.proj.weight", {1, 64});
     }},
    {"tensor markov_head.markov_w2.weight is missing",
     [](TinyDrafter& it) {
       it.Add("markov_head.markov_w1.weight", {kTinyVocabulary, 16});
     }},
    // Neither tensor has a byte. The states of the first one's rank would overflow the plan of the memory.
    {"tensor markov_head.markov_w1.weight: expected 1 to 65536 columns, got [0, 576460752303423088]",
     [](TinyDrafter& it) {
       it.Add("markov_head.markov_w1.weight", {0, 576460752303423088});
       it.config["markov_head_type"] = "rnn";
     }},
    {"tensor markov_head.markov_w1.weight: expected 1 to 65536 columns, got [1216, 0]",
     [](TinyDrafter& it) {
       it.Add("markov_head.markov_w1.weight", {kTinyVocabulary, 0});
     }},
};

TEST(Dflash, ADrafterThatDoesNotFitIsRefusedByName) {
  const testing::TinyTarget target;
  for (const BadDflash& bad : kBadDflashes) {
    TinyDrafter drafter = testing::MakeTinyDflash({});
    bad.change(drafter);
    const testing::TempDir dir;
    drafter.Write(dir);
    EXPECT_THAT(std::string(LoadBlockDraft("dflash", dir.path(), target.directory()).status().message()),
                HasSubstr(bad.error));
  }
  const testing::TempDir dir;
  testing::MakeTinyDflash({}).Write(dir);
  dir.Write("mask_embedding.pt", "PK");
  EXPECT_THAT(std::string(LoadBlockDraft("dflash", dir.path(), target.directory()).status().message()),
              HasSubstr("mask_embedding.pt is a pickle"));
}

// Where neither head is there, a name or a key says that the file is one of DSpark.
TEST(Dflash, AFileOfDsparkNeedsNoMarkovHead) {
  const testing::TinyTarget target;
  for (const auto& [key, value] : std::map<std::string, nlohmann::json>{
           {"markov_rank", 0}, {"architectures", {"DSparkDraftModel"}}, {"speculators_model_type", "dspark"}}) {
    const testing::TempDir dir;
    TinyDrafter drafter = testing::MakeTinyDflash({});
    drafter.config[key] = value;
    drafter.Write(dir);
    const absl::StatusOr<Drafter> loaded = LoadBlockDraft("dflash", dir.path(), target.directory());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->model->limits().max_steps, 5) << key << ": the first of the block's five rows guesses, too";
  }
}

TEST(Dflash, WithoutIdsReadsOutputsAtEvenDistances) {
  const testing::TinyTarget target;  // of 6 layers
  const testing::TempDir dir;
  TinyDrafter drafter = testing::MakeTinyDflash({});
  drafter.config["dflash_config"].erase("target_layer_ids");
  drafter.Add("fc.weight", {kTinyHidden, 2 * kTinyHidden});  // as many as the drafter has layers
  drafter.Write(dir);
  // The outputs of the layers 1 and 3.
  EXPECT_EQ(LoadBlockDraft("dflash", dir.path(), target.directory()).value().description.features->layers,
            std::vector<int32_t>({2, 4}));
}

// A forest over each kind of block: its tree is as deep as the block, grows on from committed tokens without their
// features, and is the tree that a session with all features gets once they have come.
enum class BlockKind { kDspark, kRecurrentDspark, kPEagle };
class BlockForestTest : public ::testing::TestWithParam<BlockKind> {
 protected:
  bool is_p_eagle() const { return GetParam() == BlockKind::kPEagle; }
  TinyDrafter Make(int64_t block_size) const {
    if (is_p_eagle()) return testing::MakeTinyPEagle({});
    const bool is_recurrent = GetParam() == BlockKind::kRecurrentDspark;
    return testing::MakeTinyDflash(
        {.block_size = block_size, .markov_rank = 16, .markov_matrix = is_recurrent ? "joint_proj" : ""});
  }
};

TEST_P(BlockForestTest, GrowsOnUntilTheBlockEndsAndAnewWithFeatures) {
  constexpr DraftForestOptions kOptions = {
      .num_children = 1, .max_children = 1, .max_grown_nodes = 60, .min_path_chance = 0, .learns_chances = false};
  const testing::TinyTarget target;
  const testing::TempDir dir;
  Make(4).Write(dir);
  const Drafter drafter = LoadBlockDraft(is_p_eagle() ? "eagle3" : "dflash", dir.path(), target.directory()).value();
  const int32_t num_guesses = drafter.model->limits().max_steps;
  const auto features = [](uint64_t first, uint64_t end) {
    std::vector<uint16_t> values;
    for (uint64_t position = first; position < end; ++position) {
      const auto one = RandomFeatures(1, kTinyHidden, static_cast<uint32_t>(100 + position)).front();
      values.insert(values.end(), one.begin(), one.end());
    }
    return values;
  };
  const auto grow = [](DraftForest& forest) {
    while (!forest.Grow().empty()) forest.CheckIntegrity();
  };
  const auto depth_of = [](const GrowingTree& tree) {
    int32_t depth = 0;
    for (int32_t node = 1; node < tree.num_nodes(); ++node) depth = std::max(depth, tree.node(node).depth);
    return depth;
  };
  const SessionIntroduction greedy = {.seed = 1, .temperature = 0};
  std::vector<int32_t> context;
  for (int32_t i = 0; i < 20; ++i) context.push_back(37 * i + 11);

  DraftForest forest(*drafter.model, kOptions);
  const DraftForest::SessionId id = forest.Open(greedy);
  forest.Append(id, context);
  forest.AppendFeatures(id, 0, features(0, context.size() - 1));
  forest.Want(id, {.node_budget = 32});
  const GrowingTree& tree = forest.Find(id).tree;
  forest.Grow();
  ASSERT_EQ(tree.num_nodes(), 2) << "the root's child";
  if (!is_p_eagle()) {
    EXPECT_FLOAT_EQ(tree.node(1).path_chance, drafter.model->confidences()[0]);
  }
  grow(forest);
  EXPECT_EQ(depth_of(tree), num_guesses);
  const uint64_t num_passes = forest.counters().num_passes;

  // The best child is committed, and its feature is still to come.
  const std::vector<int32_t> committed = {forest.Find(id).tree.Snapshot(context.size(), 8).nodes[0].token_id};
  context.insert(context.end(), committed.begin(), committed.end());
  forest.Append(id, committed);
  forest.Want(id, {.node_budget = 32});
  grow(forest);
  EXPECT_EQ(depth_of(tree), num_guesses - 1) << "the block of the root before";

  forest.AppendFeatures(id, context.size() - 2, features(context.size() - 2, context.size() - 1));
  grow(forest);
  EXPECT_EQ(depth_of(tree), num_guesses);
  EXPECT_GT(forest.counters().num_passes, num_passes);
  DraftForest other(*drafter.model, kOptions);
  const DraftForest::SessionId whole = other.Open(greedy);
  other.Append(whole, context);
  other.AppendFeatures(whole, 0, features(0, context.size() - 1));
  other.Want(whole, {.node_budget = 32});
  grow(other);
  EXPECT_EQ(tree.Snapshot(context.size(), 24).nodes, other.Find(whole).tree.Snapshot(context.size(), 24).nodes);
}

// A drafter that keeps the logits of few blocks computes them again from the blocks' outputs.
TEST_P(BlockForestTest, ATreeDoesNotDependOnWhatLogitsAreKept) {
  const testing::TinyTarget target;
  const testing::TempDir dir;
  Make(5).Write(dir);
  const auto grow = [&](int64_t max_kept_logit_bytes) {
    const DraftForestOptions options = {.max_tree_rows = 8, .max_context_rows = 12, .min_path_chance = 0};
    const Drafter drafter =
        LoadDrafter(is_p_eagle() ? "eagle3" : "dflash", {.model_directory = dir.path(),
                                                         .target_directory = target.directory(),
                                                         .num_threads = 2,
                                                         .kv_cache_mb = 1,
                                                         .forest = options,
                                                         .max_kept_logit_bytes = max_kept_logit_bytes})
            .value();
    DraftForest forest(*drafter.model, options);
    std::vector<DraftForest::SessionId> ids;
    for (int32_t i = 0; i < 9; ++i) {  // logits of four or two blocks are kept in any case
      const DraftForest::SessionId id = ids.emplace_back(forest.Open({.seed = 1, .temperature = 0.9f}));
      forest.Append(id, std::vector<int32_t>{7 * i, 2, 3});
      std::vector<uint16_t> features;
      for (const auto& feature : RandomFeatures(2, kTinyHidden, static_cast<uint32_t>(i))) {
        features.insert(features.end(), feature.begin(), feature.end());
      }
      forest.AppendFeatures(id, 0, features);
      forest.Want(id, {.node_budget = 12});
    }
    for (int pass = 0; pass < 60; ++pass) forest.Grow();
    std::vector<std::vector<speculation::TreeNode>> trees;
    for (const DraftForest::SessionId id : ids) trees.push_back(forest.Find(id).tree.Snapshot(3, 12).nodes);
    return trees;
  };
  const auto trees = grow(1 << 20);
  EXPECT_EQ(trees.back().size(), 12);
  EXPECT_EQ(grow(0), trees);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BlockForestTest,
                         ::testing::Values(BlockKind::kDspark, BlockKind::kRecurrentDspark, BlockKind::kPEagle),
                         [](const auto& param) {
                           return param.param == BlockKind::kPEagle   ? "PEagle"
                                  : param.param == BlockKind::kDspark ? "DSpark"
                                                                      : "RecurrentDSpark";
                         });

}  // namespace
}  // namespace foretoken::proposer
