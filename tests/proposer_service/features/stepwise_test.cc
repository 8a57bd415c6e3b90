// SPDX-License-Identifier: Apache-2.0
// Drafters without attention compute what their definitions say, for every form and layout of their files, and draft no
// deeper than they can. If these tests fail, they draft at a fraction of their acceptance, and nothing else shows it.
#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/draft/draft_forest.h"
#include "proposer_service/features/load_drafter.h"
#include "tests/reference/drafters.h"
#include "tests/reference/transformer.h"
#include "tests/testing/models/tiny_drafters.h"
#include "tests/testing/paths.h"

namespace foretoken::proposer {
namespace {

using reference::Doubles;
using reference::Vector;
using ::testing::HasSubstr;
using testing::kTinyHidden;
using testing::kTinyVocabulary;
using testing::RandomFeatures;
using testing::RunDraftChain;
using testing::SourcePath;
using testing::TinyDrafter;
using testing::TinyMedusa;
using testing::TinyMlp;

absl::StatusOr<Drafter> LoadStepwise(const std::string& method, const std::string& model, const std::string& target) {
  return LoadDrafter(method,
                     {.model_directory = model, .target_directory = target, .num_threads = 2, .kv_cache_mb = 1});
}

double SizeOf(const Vector& logits) {
  double size = 0;
  for (const double logit : logits) size = std::max(size, std::abs(logit));
  return size;
}

// The largest difference, as a share of the largest logit.
double Difference(const testing::Row& row, const Vector& expected) {
  EXPECT_EQ(row.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) largest = std::max(largest, std::abs(row[i] - expected[i]));
  return largest / SizeOf(expected);
}

// Up to ten roundings to bf16 come before the logits, each of a relative 2^-9.
constexpr double kStepwiseTolerance = 10 * 0x1p-9;

TEST(MlpSpeculator, ComputesTheDefinition) {
  const testing::TinyTarget target;
  const std::vector<int32_t> chain = {3, 1000, 41, 7, 90};  // two given rows, and three steps from the second
  const auto features = RandomFeatures(2, kTinyHidden, 9);
  for (const TinyMlp& form : {TinyMlp{.n_predict = 4}, TinyMlp{.n_predict = 4, .is_tied = true, .prefix = ""},
                              TinyMlp{.inner_dim = kTinyHidden, .n_predict = 5, .scales_input = false}}) {
    const testing::TempDir dir;
    testing::MakeTinyMlp(form).Write(dir);
    const absl::StatusOr<Drafter> drafter = LoadStepwise("mlp_speculator", dir.path(), target.directory());
    ASSERT_TRUE(drafter.ok()) << drafter.status();
    EXPECT_EQ(drafter->model->limits().max_steps, form.n_predict);
    EXPECT_TRUE(drafter->description.features->layers.empty());
    EXPECT_FALSE(drafter->description.features->projection.has_value());
    reference::Tensors tensors;
    for (auto& [name, values] : reference::ReadTensors(dir.path() + "/model.safetensors")) {
      tensors[name.substr(form.prefix.size())] = std::move(values);
    }
    const reference::MlpShape shape = {.emb_dim = kTinyHidden,
                                       .inner_dim = form.inner_dim,
                                       .n_predict = form.n_predict,
                                       .is_tied = form.is_tied,
                                       .scales_input = form.scales_input};
    const std::vector<testing::Row> rows = RunDraftChain(*drafter->model, chain, features);
    const std::vector<int64_t> after_first = {3}, after_second = {1000, 41, 7, 90};
    EXPECT_LT(
        Difference(rows[0], reference::RunMlpSpeculator(shape, tensors, Doubles(features[0]), after_first)[0].logits),
        kStepwiseTolerance);
    const auto expected = reference::RunMlpSpeculator(shape, tensors, Doubles(features[1]), after_second);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(Difference(rows[1 + i], expected[i].logits), kStepwiseTolerance) << "step " << i;
    }
  }
}

// The tensors of a Medusa file under vLLM's names.
reference::Tensors MedusaTensors(const std::string& path, int64_t num_layers) {
  reference::Tensors tensors;
  for (auto& [name, values] : reference::ReadTensors(path)) {
    std::string renamed = name;
    if (absl::StrContains(name, ".linear.")) {  // M.J.linear.weight
      renamed = absl::StrCat("blocks.", name.substr(0, 1), ".layers.", name.substr(2, 1), name.substr(10));
    } else if (absl::StrContains(name, absl::StrCat(".", num_layers, ".weight")) && name[1] == '.') {
      renamed = absl::StrCat("lm_heads.", name.substr(0, 1), ".weight");
    }
    tensors[renamed] = std::move(values);
  }
  return tensors;
}

TEST(Medusa, ComputesTheDefinition) {
  const testing::TinyTarget target;
  const std::vector<int32_t> chain = {3, 1000, 41, 7};  // two given rows, and two steps from the second
  const auto features = RandomFeatures(2, kTinyHidden, 9);
  const Vector target_head = reference::ReadTensors(target.directory() + "/model.safetensors").at("lm_head.weight");
  for (const TinyMedusa& form : {TinyMedusa{}, TinyMedusa{.num_layers = 2, .num_lm_heads = 0},
                                 TinyMedusa{.has_first_names = false, .has_bias = false, .num_lm_heads = 1},
                                 TinyMedusa{.has_first_names = false, .num_layers = 2, .num_listed = 100}}) {
    const testing::TempDir dir;
    const TinyDrafter files = testing::MakeTinyMedusa(form);
    files.Write(dir);
    const absl::StatusOr<Drafter> drafter = LoadStepwise("medusa", dir.path(), target.directory());
    ASSERT_TRUE(drafter.ok()) << drafter.status();
    EXPECT_EQ(drafter->model->limits().max_steps, 3);
    const reference::Tensors tensors = MedusaTensors(dir.path() + "/" + files.file_name, form.num_layers);
    const std::vector<testing::Row> rows = RunDraftChain(*drafter->model, chain, features);
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t head = std::max<int64_t>(i - 1, 0);
      const std::string lm_head = absl::StrCat("lm_heads.", form.num_lm_heads == 1 ? 0 : head, ".weight");
      const Vector drafted = reference::RunMedusaHead(tensors, head, form.num_layers,
                                                      form.num_lm_heads == 0 ? target_head : tensors.at(lm_head),
                                                      Doubles(features[i == 0 ? 0 : 1]));
      Vector expected = drafted;
      if (form.num_listed > 0) {
        expected.assign(kTinyVocabulary, -std::numeric_limits<double>::infinity());
        for (size_t j = 0; j < drafted.size(); ++j) {
          const auto id = static_cast<size_t>(kTinyVocabulary - 1 - 3 * j);
          expected[id] = drafted[j];
          EXPECT_NEAR(rows[i][id], drafted[j], kStepwiseTolerance * SizeOf(drafted));
        }
        for (size_t id = 0; id < expected.size(); ++id) {
          EXPECT_EQ(std::isinf(rows[i][id]), std::isinf(expected[id])) << id;
        }
      } else {
        EXPECT_LT(Difference(rows[i], expected), kStepwiseTolerance) << "row " << i;
      }
    }
  }
}

TEST(Medusa, HasAsManyHeadsAsItsFile) {
  const testing::TinyTarget target;
  TinyDrafter medusa = testing::MakeTinyMedusa({.num_layers = 2});
  medusa.config["medusa_num_heads"] = 2;
  medusa.config["medusa_num_layers"] = 1;
  const testing::TempDir dir;
  medusa.Write(dir);
  EXPECT_EQ(LoadStepwise("medusa", dir.path(), target.directory()).value().model->limits().max_steps, 3);
}

TEST(Medusa, NamesBothFilesThatItReads) {
  const testing::TinyTarget target;
  const testing::TempDir dir;
  dir.Write("medusa_lm_head.pt", "PK");
  dir.Write("config.json", "{}");
  EXPECT_THAT(std::string(LoadStepwise("medusa", dir.path(), target.directory()).status().message()),
              ::testing::AllOf(HasSubstr("model.safetensors"), HasSubstr("medusa_lm_head.safetensors")));
}

// The demo drafters against numbers that another implementation computed in double.
void ExpectDemoDrafts(const std::string& method) {
  const std::string model = SourcePath("deploy/demo/" + method), target = SourcePath("deploy/demo/target");
  const absl::StatusOr<Drafter> drafter = LoadStepwise(method, model, target);
  ASSERT_TRUE(drafter.ok()) << drafter.status();
  const auto transformer = reference::Transformer::Load(target, reference::Rounding::kNone).value();
  const nlohmann::json cases = base::ReadJson(model + "/reference.json").value()["cases"];
  ASSERT_EQ(cases.size(), 3);
  for (const nlohmann::json& one : cases) {
    const auto context = one["token_ids"].get<std::vector<int64_t>>();
    const Vector last = transformer.FinalNorm({transformer.HiddenStates(context).back().back()}).front();
    std::vector<uint16_t> feature;
    for (const double value : last) feature.push_back(kernels::Bf16FromFloat(static_cast<float>(value)));
    std::vector<int32_t> chain = {one["next_token"].get<int32_t>()};
    for (size_t i = 0; i + 1 < one["drafts"].size(); ++i) {
      chain.push_back(one["drafts"][i]["top_ids"][0].get<int32_t>());
    }
    const std::vector<testing::Row> rows = RunDraftChain(*drafter->model, chain, {feature});
    for (size_t draft = 0; draft < rows.size(); ++draft) {
      const nlohmann::json& expected = one["drafts"][draft];
      for (size_t i = 0; i < expected["top_ids"].size(); ++i) {
        EXPECT_NEAR(rows[draft][expected["top_ids"][i].get<size_t>()], expected["top_logits"][i].get<double>(), 0.06)
            << method << ", draft " << draft;
      }
    }
  }
}

TEST(MlpSpeculator, DraftsAsItsReference) { ExpectDemoDrafts("mlp_speculator"); }
TEST(Medusa, DraftsAsItsReference) { ExpectDemoDrafts("medusa"); }

TEST(Stepwise, TreesAreAsDeepAsTheStepsSinceTheLastFeature) {
  const testing::TinyTarget target;
  const testing::TempDir mlp, medusa;
  testing::MakeTinyMlp({}).Write(mlp);
  testing::MakeTinyMedusa({}).Write(medusa);
  for (const auto& [method, directory] : {std::pair("mlp_speculator", mlp.path()), {"medusa", medusa.path()}}) {
    const std::unique_ptr<DraftModel> model =
        std::move(LoadStepwise(method, directory, target.directory()).value().model);
    DraftForest forest(
        *model,
        {.num_children = 4, .max_children = 4, .max_grown_nodes = 100, .min_path_chance = 0, .learns_chances = false});
    const DraftForest::SessionId id = forest.Open({.seed = 1, .temperature = 0});
    forest.Append(id, std::vector<int32_t>{5, 6, 7, 8});
    std::vector<uint16_t> values;
    for (const auto& feature : RandomFeatures(3, kTinyHidden, 2)) {
      values.insert(values.end(), feature.begin(), feature.end());
    }
    forest.AppendFeatures(id, 0, values);
    const auto grow = [&] {
      forest.Want(id, {.node_budget = 64});
      while (!forest.Grow().empty()) forest.CheckIntegrity();
      int32_t deepest = 0;
      const GrowingTree& tree = forest.Find(id).tree;
      for (int32_t i = 0; i < tree.num_nodes(); ++i) deepest = std::max(deepest, tree.node(i).depth);
      return deepest;
    };
    EXPECT_EQ(grow(), 3) << method;
    EXPECT_EQ(forest.Find(id).tree.num_expanded(), 4 + 16);
    const GrowingTree& tree = forest.Find(id).tree;
    forest.Append(id, std::vector<int32_t>{tree.Children(GrowingTree::kRoot)[1].child.token_id});
    EXPECT_EQ(grow(), 2) << "one step has been committed";
    forest.AppendFeatures(id, 3, std::span(values).first(kTinyHidden));
    EXPECT_EQ(grow(), 3);
  }
}

TEST(Stepwise, ADrafterThatDoesNotFitIsRefusedByName) {
  const testing::TinyTarget target;
  const auto error_of = [&](const std::string& method, const TinyDrafter& drafter) {
    const testing::TempDir dir;
    drafter.Write(dir);
    return std::string(LoadStepwise(method, dir.path(), target.directory()).status().message());
  };
  TinyDrafter mlp = testing::MakeTinyMlp({});
  mlp.config["emb_dim"] = 128;
  EXPECT_THAT(error_of("mlp_speculator", mlp), HasSubstr("emb_dim expects the target's hidden size 64, got 128"));
  mlp = testing::MakeTinyMlp({});
  mlp.config["n_predict"] = 4;
  EXPECT_THAT(error_of("mlp_speculator", mlp), HasSubstr("tensor proj.3.weight is missing"));
  mlp.config["n_predict"] = 0;
  EXPECT_THAT(error_of("mlp_speculator", mlp), HasSubstr("n_predict expects 1 to 64, got 0"));
  mlp = testing::MakeTinyMlp({});
  mlp.config["vocab_size"] = 4096;
  EXPECT_THAT(error_of("mlp_speculator", mlp), HasSubstr("vocab_size expects 1206 to 1216"));
  TinyDrafter medusa = testing::MakeTinyMedusa({});
  medusa.config["medusa_num_heads"] = 4;
  EXPECT_THAT(error_of("medusa", medusa), HasSubstr("tensor blocks.3.layers.0.weight is missing"));
  medusa = testing::MakeTinyMedusa({});
  medusa.config["logit_scale"] = 0;
  EXPECT_THAT(error_of("medusa", medusa), HasSubstr("logit_scale expects a number above 0"));
  medusa = testing::MakeTinyMedusa({.num_lm_heads = 1});
  medusa.Add("1.1.weight", {kTinyVocabulary, kTinyHidden});
  EXPECT_THAT(error_of("medusa", medusa), HasSubstr("got also 1.1.weight"));
  mlp = testing::MakeTinyMlp({});
  mlp.config["n_predict"] = 2;
  EXPECT_THAT(error_of("mlp_speculator", mlp), HasSubstr("got also speculator.emb.2.weight"));
  medusa = testing::MakeTinyMedusa({.has_first_names = false, .num_listed = 2});
  medusa.AddIntegers("token_map", {7, 7});
  EXPECT_THAT(error_of("medusa", medusa), HasSubstr("token_map: expected distinct ids from 0 to 1215, got 7"));
  medusa = testing::MakeTinyMedusa({});
  medusa.Add("0.1.weight", {100, kTinyHidden});
  EXPECT_THAT(error_of("medusa", medusa), HasSubstr("lm_heads.0.weight: expected 1206 outputs"));
}

}  // namespace
}  // namespace foretoken::proposer
