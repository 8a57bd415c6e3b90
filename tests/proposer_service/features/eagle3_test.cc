// SPDX-License-Identifier: Apache-2.0
// EAGLE-3 heads compute what their definition says, for every form and layout of their files. If these tests fail, a
// head drafts at a fraction of its acceptance, and nothing else shows it.
#include "proposer_service/features/eagle3.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_replace.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reference/drafters.h"
#include "tests/reference/transformer.h"
#include "tests/testing/models/tiny_drafters.h"
#include "tests/testing/paths.h"

namespace foretoken::proposer {
namespace {

using reference::Doubles;
using reference::Vector;
using testing::MakeTinyEagle3;
using testing::RandomFeatures;
using testing::RunDraftChain;
using testing::SourcePath;
using testing::TinyEagle3;

DraftOptions OptionsFor(const std::string& model, const std::string& target) {
  return {.model_directory = model, .target_directory = target, .num_threads = 2, .kv_cache_mb = 1};
}

uint16_t Bf16(double value) { return kernels::Bf16FromFloat(static_cast<float>(value)); }

// The largest difference at ids of the draft vocabulary. All other ids must have minus infinity.
double Difference(const testing::Row& row, const Vector& drafted, const std::vector<int64_t>& token_ids) {
  double largest = 0;
  std::vector<bool> is_drafted(row.size());
  for (size_t i = 0; i < drafted.size(); ++i) {
    largest = std::max(largest, std::abs(row[static_cast<size_t>(token_ids[i])] - drafted[i]));
    is_drafted[static_cast<size_t>(token_ids[i])] = true;
  }
  for (size_t id = 0; id < row.size(); ++id) {
    if (is_drafted[id]) continue;
    EXPECT_EQ(row[id], -std::numeric_limits<float>::infinity()) << id;
  }
  return largest;
}

// Logits are sums of E products of a bf16 input, rounded to a relative 2^-9, and a weight. About ten roundings precede
// them. Logits here have size 2, so the difference stays below 2 * 10 * 2^-9 with room.
constexpr double kTolerance = 0.05;

class Eagle3FormTest : public ::testing::TestWithParam<TinyEagle3> {};

TEST_P(Eagle3FormTest, ComputesTheDefinition) {
  const TinyEagle3& form = GetParam();
  const testing::TinyTarget target;
  testing::TinyDrafter head = MakeTinyEagle3(form);
  head.config["logit_scale"] = 0.5;
  const testing::TempDir dir;
  head.Write(dir);
  absl::StatusOr<Drafter> drafter = LoadEagle3(OptionsFor(dir.path(), target.directory()));
  ASSERT_TRUE(drafter.ok()) << drafter.status();

  reference::Tensors tensors;
  for (auto& [name, values] : reference::ReadTensors(dir.path() + "/model.safetensors")) {
    tensors[name.substr(form.prefix.size())] = std::move(values);
  }
  reference::Tensors of_target = reference::ReadTensors(target.directory() + "/model.safetensors");
  const bool is_mapped = form.draft_vocab_size < testing::kTinyVocabulary;
  std::vector<int64_t> token_ids;
  Vector target_rows;  // of the target's head, for the draft vocabulary
  const Vector& target_head = of_target.at("lm_head.weight");
  for (int64_t i = 0; i < form.draft_vocab_size; ++i) {
    token_ids.push_back(is_mapped ? 5 * i : i);
    const auto row = target_head.begin() + token_ids.back() * testing::kTinyHidden;
    target_rows.insert(target_rows.end(), row, row + testing::kTinyHidden);
  }
  const reference::Eagle definition({.hidden_size = testing::kTinyHidden,
                                     .num_heads = 4,
                                     .num_kv_heads = 2,
                                     .head_dim = 16,
                                     .norm_before_residual = form.norm_before_residual,
                                     .norm_output = form.norm_output,
                                     .logit_scale = 0.5,
                                     .block = form.layout == testing::Layout::kSpeculators ? "layers.0." : "midlayer."},
                                    tensors, of_target.at("model.embed_tokens.weight"), target_rows);
  const std::vector<int32_t> chain = {3, 1000, 41, 7, 90, 1100, 12};
  const auto features = RandomFeatures(4, testing::kTinyHidden, 9);
  std::vector<reference::DraftInput> inputs;
  for (size_t i = 0; i < chain.size(); ++i) {
    inputs.push_back({.token_id = chain[i]});
    if (i < features.size()) inputs.back().feature = Doubles(features[i]);
  }
  const std::vector<testing::Row> rows = RunDraftChain(*drafter->model, chain, features);
  const std::vector<reference::DraftedRow> expected = definition.Run(inputs);
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_LT(Difference(rows[i], expected[i].logits, token_ids), kTolerance) << "row " << i;
  }

  // The first matrix, as the verifier gets it.
  const speculation::TargetFeatures& description = *drafter->description.features;
  ASSERT_TRUE(description.projection.has_value());
  Vector weight = Doubles(description.projection->weight);
  EXPECT_EQ(weight, tensors.at("fc.weight"));
  using Norm = speculation::FeatureProjection::Norm;
  EXPECT_EQ(description.projection->norm, form.norm_before_fc ? Norm::kWhole
                                          : form.fc_norm      ? Norm::kPerLayer
                                                              : Norm::kNone);
  EXPECT_EQ(description.projection->gains.size(), form.norm_before_fc || form.fc_norm ? 3 * testing::kTinyHidden : 0);
  EXPECT_EQ(description.width(), testing::kTinyHidden);
}

TEST(Eagle3, ReadsTheHiddenStatesThatItsLayoutNames) {
  const testing::TinyTarget target;
  for (const auto& [layout, layers] : {std::pair(testing::Layout::kPlain, std::vector<int32_t>{2, 3, 3}),
                                       {testing::Layout::kModelOpt, {1, 3, 5}},
                                       {testing::Layout::kSpeculators, {1, 3, 5}}}) {
    const testing::TempDir dir;
    MakeTinyEagle3({.layout = layout}).Write(dir);
    DraftOptions options = OptionsFor(dir.path(), target.directory());
    EXPECT_EQ(LoadEagle3(options).value().description.features->layers, layers);
    options.feature_layers = "0,6,2";
    EXPECT_EQ(LoadEagle3(options).value().description.features->layers, std::vector<int32_t>({0, 6, 2}));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, Eagle3FormTest,
    ::testing::Values(TinyEagle3{}, TinyEagle3{.layout = testing::Layout::kModelOpt, .fc_norm = true},
                      TinyEagle3{.layout = testing::Layout::kSpeculators, .norm_before_fc = true, .has_qk_norm = true},
                      TinyEagle3{.norm_before_residual = true, .has_embedding = true, .prefix = "model."},
                      TinyEagle3{.norm_output = true, .has_head = false},
                      TinyEagle3{.layout = testing::Layout::kSpeculators,
                                 .norm_before_residual = true,
                                 .norm_output = true,
                                 .draft_vocab_size = testing::kTinyVocabulary},
                      TinyEagle3{.has_head = false, .draft_vocab_size = testing::kTinyVocabulary}));

// The demo head against numbers that another implementation computed in double.
class DemoEagle3Test : public ::testing::Test {
 protected:
  // The head in this directory drafts what the reference of the demo head says.
  void ExpectReference(const std::string& directory) const;

  const std::string head_ = SourcePath("deploy/demo/eagle3"), target_ = SourcePath("deploy/demo/target");
  const nlohmann::json cases_ = base::ReadJson(head_ + "/reference.json").value()["cases"];
};

void DemoEagle3Test::ExpectReference(const std::string& directory) const {
  absl::StatusOr<Drafter> drafter = LoadEagle3(OptionsFor(directory, target_));
  ASSERT_TRUE(drafter.ok()) << drafter.status();
  EXPECT_EQ(drafter->description.features->layers, std::vector<int32_t>({2, 4, 5}));
  const auto target = reference::Transformer::Load(target_, reference::Rounding::kNone).value();
  const reference::Eagle definition({}, reference::ReadTensors(head_ + "/model.safetensors"), {});
  ASSERT_EQ(cases_.size(), 3);
  for (const nlohmann::json& one : cases_) {
    const auto context = one["token_ids"].get<std::vector<int64_t>>();
    const std::vector<reference::Transformer::Rows> states = target.HiddenStates(context);
    std::vector<std::vector<uint16_t>> features;
    for (size_t row = 0; row < context.size(); ++row) {
      Vector joined;
      for (const size_t k : {2, 4, 5}) joined.insert(joined.end(), states[k][row].begin(), states[k][row].end());
      features.emplace_back();
      for (const double value : definition.Feature(joined)) features.back().push_back(Bf16(value));
    }
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(kernels::FloatFromBf16(features.back()[i]),
                  one["drafts"][0]["input"]["feature_first4"][i].get<double>(), 0.2)
          << "values up to 64 in bf16";
    }
    // Row i has token i + 1 and feature i. The drafts continue the chain.
    std::vector<int32_t> chain(context.begin() + 1, context.end());
    chain.push_back(one["next_token"].get<int32_t>());
    for (size_t i = 1; i < one["drafts"].size(); ++i) {
      chain.push_back(one["drafts"][i]["input"]["token"].get<int32_t>());
    }
    const std::vector<testing::Row> rows = RunDraftChain(*drafter->model, chain, features);
    for (size_t draft = 0; draft < one["drafts"].size(); ++draft) {
      const testing::Row& row = rows[context.size() - 1 + draft];
      const nlohmann::json& expected = one["drafts"][draft];
      for (size_t i = 0; i < expected["top_ids"].size(); ++i) {
        EXPECT_NEAR(row[expected["top_ids"][i].get<size_t>()], expected["top_logits"][i].get<double>(), 0.06)
            << "draft " << draft;
      }
      double total = 0;
      for (const float logit : row) total += std::exp(double{logit});
      EXPECT_NEAR(std::log(total), expected["logsumexp"].get<double>(), 0.04) << "draft " << draft;
    }
  }
}

TEST_F(DemoEagle3Test, DraftsAsItsReference) { ExpectReference(head_); }

// The names of the layouts have equal lengths, so the header of the file keeps its size.
TEST_F(DemoEagle3Test, DraftsTheSameInTheLayoutOfSpeculators) {
  std::string file = base::ReadFile(head_ + "/model.safetensors").value();
  const int num_renamed = absl::StrReplaceAll({{"\"midlayer.", "\"layers.0."}}, &file);
  EXPECT_EQ(num_renamed, 10) << "the block's tensors";
  const testing::TempDir dir;
  dir.Write("model.safetensors", file);
  dir.Write("config.json", base::ReadFile(head_ + "/config.speculators.json").value());
  ExpectReference(dir.path());
}

}  // namespace
}  // namespace foretoken::proposer
