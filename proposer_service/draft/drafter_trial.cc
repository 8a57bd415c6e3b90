// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/drafter_trial.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/model/feature_plane.h"
#include "common/model/runnable_model.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

constexpr absl::string_view kPrompts[] = {"def read_config(path):\n    \"\"\"Read a JSON file.\"\"\"\n",
                                          "The history of the city begins with",
                                          "import os\nimport sys\n\n\nclass Cache:\n    def __init__(self, size):\n",
                                          "Q: What is the difference between a list and a tuple?\nA:",
                                          "1, 2, 3, 4, 5,",
                                          "Dear Ms Miller,\n\nthank you for your letter of"};
constexpr int32_t kNumTokens = 64;  // of a continuation
constexpr int32_t kMaxTokens = 96;  // of a text
// A better reading must be better by so many standard errors of the mean difference, over the same tokens.
constexpr double kErrors = 2.5;
constexpr double kMinHitRate = 0.2;  // 1.2 tokens per step

// What the drafter says of the target's tokens under one reading.
struct Reading {
  speculation::TargetFeatures features;
  std::vector<double> log_probs;  // of the tokens that it may guess
  int64_t num_hits = 0;           // that are its best guess
  int64_t num_tokens = 0;

  double mean() const {
    return std::accumulate(log_probs.begin(), log_probs.end(), 0.0) / static_cast<double>(log_probs.size());
  }
};

std::vector<Reading> ReadingsOf(const speculation::TargetFeatures& features, int64_t num_layers) {
  std::vector<Reading> readings = {{.features = features}};
  for (const int32_t shift : {1, -1}) {
    Reading reading = {.features = features};
    const auto is_inside = [&](int32_t k) { return k + shift >= 0 && k + shift <= num_layers; };
    if (features.layers.empty() || !std::ranges::all_of(features.layers, is_inside)) continue;
    for (int32_t& k : reading.features.layers) k += shift;
    readings.push_back(std::move(reading));
  }
  return readings;
}

std::vector<int32_t> AllBlocks(int32_t num_blocks) {
  std::vector<int32_t> blocks(num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

int32_t BestToken(const kernels::ConstTensorView& logits, model::RunnableModel& target) {
  const kernels::RowToBranch row = {.sampling = {.temperature = 0}, .num_children = 1};
  kernels::RowChildren best;
  target.transformer->backend().BranchRows(
      {.logits = logits, .num_tokens = target.num_tokens(), .rows = {&row, 1}, .children = {&best, 1}});
  target.transformer->Synchronize();
  return best.children.empty() ? 0 : best.children[0].token_id;
}

// Continues a text greedily. The planes keep the features of all tokens but the last.
void Continue(model::RunnableModel& target, std::span<model::FeaturePlane> planes, std::vector<int32_t>& token_ids) {
  const std::vector<int32_t> blocks = AllBlocks(target.kv.num_blocks);
  size_t num_computed = 0;
  for (int32_t i = 0; i < kNumTokens; ++i) {
    model::ForwardBatch batch;
    const int32_t last = model::AppendSegment({.block_table = blocks,
                                               .first_position = static_cast<int32_t>(num_computed),
                                               .chain = std::span(token_ids).subspan(num_computed)},
                                              &batch);
    batch.logit_rows = {last};
    num_computed = token_ids.size();
    const kernels::ConstTensorView logits = target.transformer->Forward(batch, target.kv);
    std::vector<model::FeatureRow> rows;
    for (int32_t row = 0; row <= last; ++row) rows.push_back({.row = row, .slot = batch.slots[row]});
    for (model::FeaturePlane& plane : planes) plane.Store(rows);
    token_ids.push_back(BestToken(logits, target));
  }
}

// Row i of the drafter has token i + 1 and the feature of token i, and guesses token i + 2.
void Score(DraftModel& drafter, std::span<const int32_t> token_ids, size_t num_prompt, std::vector<uint16_t> features,
           Reading& reading) {
  const auto num_rows = static_cast<int32_t>(token_ids.size()) - 2;
  const std::vector<int32_t> blocks = AllBlocks((num_rows - 1) / kernels::kKvBlockSize + 1);
  DraftPass pass;
  model::AppendSegment({.block_table = blocks, .chain = token_ids.subspan(1, num_rows)}, &pass.batch);
  pass.given_features = std::move(features);
  pass.steps.assign(num_rows, 0);
  for (int32_t row = 0; row < num_rows; ++row) {
    pass.given_rows.push_back(row);
    pass.batch.logit_rows.push_back(row);
  }
  std::vector<kernels::RowLogprobs> scores(num_rows);
  drafter.backend().ScoreTokens(
      {.logits = drafter.Forward(pass), .token_ids = token_ids.subspan(2, num_rows), .num_top = 1, .scores = scores});
  drafter.Synchronize();
  for (size_t row = num_prompt - 2; row < scores.size(); ++row) {
    ++reading.num_tokens;
    reading.num_hits += scores[row].top.at(0).token_id == scores[row].token.token_id ? 1 : 0;
    if (std::isfinite(scores[row].token.logprob)) reading.log_probs.push_back(scores[row].token.logprob);
  }
}

// How much better `other` is, in standard errors. Both are of the same tokens.
double Advantage(const Reading& other, const Reading& given) {
  const size_t count = given.log_probs.size();
  if (count < 2 || other.log_probs.size() != count) return 0;
  const double mean = other.mean() - given.mean();
  double squares = 0;
  for (size_t i = 0; i < count; ++i) squares += std::pow(other.log_probs[i] - given.log_probs[i] - mean, 2);
  return mean / std::sqrt(std::max(squares, 1e-12) / static_cast<double>(count * (count - 1)));
}

absl::Status Judge(std::span<const Reading> readings) {
  const auto describe = [](const Reading& reading) {
    const std::vector<int32_t>& layers = reading.features.layers;
    return absl::StrCat("with ", layers.empty() ? "the last hidden state" : "the hidden states ",
                        absl::StrJoin(layers, ","), " ", reading.num_hits, " of the target's ", reading.num_tokens,
                        " tokens are the drafter's best guess, and it gives them a mean log-probability of ",
                        reading.mean());
  };
  for (const Reading& reading : readings) spdlog::info("trial: {}", describe(reading));
  const Reading& given = readings[0];
  for (const Reading& other : readings.subspan(1)) {
    if (Advantage(other, given) < kErrors) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the drafter's file is misread: ", describe(given), "; ", describe(other),
                     ". Start it with --feature_layers=", absl::StrJoin(other.features.layers, ",")));
  }
  if (static_cast<double>(given.num_hits) >= kMinHitRate * static_cast<double>(given.num_tokens)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the drafter does not fit its target: ", describe(given), "; expected more than one in five"));
}

}  // namespace

absl::Status TryDrafter(DraftModel& drafter, const speculation::TargetFeatures& features, const DraftOptions& options) {
  FT_ASSIGN_OR_RETURN(
      model::OpenedModel opened,
      model::OpenModel(
          {.directory = options.target_directory,
           .backend = {.device = options.device, .num_threads = options.num_threads, .isa = options.cpu_isa}}));
  const model::ContextPlan context = {.max_context_tokens = kMaxTokens,
                                      .num_blocks = kMaxTokens / kernels::kKvBlockSize};
  FT_ASSIGN_OR_RETURN(model::RunnableModel target,
                      model::LoadModel(std::move(opened), {.max_rows = kMaxTokens, .context = context}, nullptr));
  std::vector<Reading> readings = ReadingsOf(features, target.config.num_layers);
  std::vector<model::FeaturePlane> planes;
  std::vector<int32_t> layers;
  for (const Reading& reading : readings) {
    planes.emplace_back(reading.features, *target.transformer, target.kv.num_blocks);
    layers.insert(layers.end(), planes.back().layers().begin(), planes.back().layers().end());
  }
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  target.transformer->Capture(layers);
  const std::vector<int32_t> blocks = AllBlocks(target.kv.num_blocks);
  for (const absl::string_view prompt : kPrompts) {
    FT_ASSIGN_OR_RETURN(std::vector<int32_t> token_ids, target.tokenizer.Encode(prompt));
    const size_t num_prompt = std::clamp<size_t>(token_ids.size(), 2, kMaxTokens - kNumTokens);
    token_ids.resize(num_prompt, 0);
    Continue(target, planes, token_ids);
    const int32_t max_rows = std::min(drafter.limits().max_rows, drafter.limits().max_positions);
    token_ids.resize(std::min<size_t>(token_ids.size(), max_rows + 2));
    for (size_t i = 0; i < readings.size(); ++i) {
      Score(drafter, token_ids, num_prompt, planes[i].Read(blocks, 0, static_cast<int32_t>(token_ids.size()) - 2),
            readings[i]);
    }
  }
  return Judge(readings);
}

}  // namespace foretoken::proposer
