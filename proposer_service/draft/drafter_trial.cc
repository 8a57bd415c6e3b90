// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/drafter_trial.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/model/feature_plane.h"
#include "common/tokenizer/tokenizer.h"
#include "proposer_service/draft/drafter_watch.h"
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
constexpr int32_t kMaxPrompt = kMaxTokens - kNumTokens;
constexpr auto kNumTexts = static_cast<int32_t>(std::size(kPrompts));
// A better reading must be better by so many standard errors of the mean difference, over the same tokens.
constexpr double kErrors = 2.5;
// Fewer scored tokens say nothing.
constexpr int64_t kMinScored = 100;

// A prompt and what the target makes of it.
struct Text {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> blocks;
  size_t num_prompt = 0;
  size_t num_computed = 0;
};

// What the drafter says of the target's tokens under one reading.
struct Reading {
  speculation::TargetFeatures features;
  std::vector<double> log_probs;  // of the tokens that it may guess
  int64_t num_hits = 0;           // that are its best guess
  int64_t num_tokens = 0;

  double mean() const {
    if (log_probs.empty()) return -std::numeric_limits<double>::infinity();
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

absl::StatusOr<std::vector<Text>> BeginTexts(const tokenizer::Tokenizer& tokenizer) {
  constexpr int32_t kBlocks = kMaxTokens / kernels::kKvBlockSize;
  std::vector<Text> texts;
  for (const absl::string_view prompt : kPrompts) {
    Text& text = texts.emplace_back();
    FT_ASSIGN_OR_RETURN(text.token_ids, tokenizer.Encode(prompt));
    text.num_prompt = std::clamp<size_t>(text.token_ids.size(), 2, kMaxPrompt);
    text.token_ids.resize(text.num_prompt, 0);
    text.blocks.resize(kBlocks);
    std::iota(text.blocks.begin(), text.blocks.end(), static_cast<int32_t>(texts.size() - 1) * kBlocks);
  }
  return texts;
}

// Appends the best token of each text, whose row is as the text's number.
void AppendBest(const kernels::ConstTensorView& logits, model::RunnableModel& target, std::span<Text> texts) {
  std::vector<kernels::RowToBranch> rows;
  for (size_t i = 0; i < texts.size(); ++i) {
    rows.push_back({.logit_row = static_cast<int32_t>(i), .sampling = {.temperature = 0}, .num_children = 1});
  }
  std::vector<kernels::RowChildren> best(texts.size());
  target.transformer->backend().BranchRows(
      {.logits = logits, .num_tokens = target.num_tokens(), .rows = rows, .children = best});
  target.transformer->Synchronize();
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].token_ids.push_back(best[i].children.empty() ? 0 : best[i].children[0].token_id);
  }
}

// Continues the texts greedily, side by side. The planes keep the features of all tokens but the last of each.
void Continue(model::RunnableModel& target, std::span<model::FeaturePlane> planes, std::span<Text> texts) {
  for (int32_t i = 0; i < kNumTokens; ++i) {
    model::ForwardBatch batch;
    for (Text& text : texts) {
      batch.logit_rows.push_back(
          model::AppendSegment({.block_table = text.blocks,
                                .first_position = static_cast<int32_t>(text.num_computed),
                                .chain = std::span<const int32_t>(text.token_ids).subspan(text.num_computed)},
                               &batch));
      text.num_computed = text.token_ids.size();
    }
    const kernels::ConstTensorView logits = target.transformer->Forward(batch, target.kv);
    std::vector<model::FeatureRow> rows;
    for (int32_t row = 0; row < batch.num_rows(); ++row) rows.push_back({.row = row, .slot = batch.slots[row]});
    for (model::FeaturePlane& plane : planes) plane.Store(rows);
    AppendBest(logits, target, texts);
  }
}

// Row i of the drafter has token i + 1 and the feature of token i, and guesses token i + 2.
void Score(DraftModel& drafter, const Text& text, std::span<const uint16_t> features, Reading& reading) {
  const DraftModel::Limits& limits = drafter.limits();
  const int32_t num_rows = std::min(static_cast<int32_t>(text.token_ids.size()) - 2, limits.max_positions);
  const std::vector<int32_t> blocks = AllBlocks((num_rows - 1) / kernels::kKvBlockSize + 1);
  const auto tokens = std::span<const int32_t>(text.token_ids);
  for (int32_t first = 0; first < num_rows; first += limits.max_rows) {  // a pass may hold fewer rows than a text has
    const int32_t num_now = std::min(num_rows - first, limits.max_rows);
    DraftPass pass;
    model::AppendSegment({.block_table = blocks, .first_position = first, .chain = tokens.subspan(first + 1, num_now)},
                         &pass.batch);
    const auto given = features.subspan(first * limits.feature_width, num_now * limits.feature_width);
    pass.given_features.assign(given.begin(), given.end());
    pass.steps.assign(num_now, 0);
    for (int32_t row = 0; row < num_now; ++row) {
      pass.given_rows.push_back(row);
      pass.batch.logit_rows.push_back(row);
    }
    std::vector<kernels::RowLogprobs> scores(num_now);
    drafter.backend().ScoreTokens({.logits = drafter.Forward(pass),
                                   .token_ids = tokens.subspan(first + 2, num_now),
                                   .num_top = 1,
                                   .scores = scores});
    drafter.Synchronize();
    for (int32_t row = std::max(static_cast<int32_t>(text.num_prompt) - 2 - first, 0); row < num_now; ++row) {
      ++reading.num_tokens;
      const kernels::RowLogprobs& score = scores[row];
      // A row whose logits are not finite has no best token.
      reading.num_hits += !score.top.empty() && score.top[0].token_id == score.token.token_id ? 1 : 0;
      if (std::isfinite(score.token.logprob)) reading.log_probs.push_back(score.token.logprob);
    }
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
  if (given.num_tokens < kMinScored) {
    return absl::InvalidArgumentError(
        absl::StrCat("the trial on the target scored ", given.num_tokens, " tokens, and needs ", kMinScored,
                     ": the drafter holds too few positions. Raise --kv_cache_mb, or serve it untried with "
                     "--try_on_target=false"));
  }
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

absl::StatusOr<model::RunnableModel> LoadTrialTarget(const DraftOptions& options, std::optional<int64_t> free_bytes) {
  FT_ASSIGN_OR_RETURN(
      model::OpenedModel opened,
      model::OpenModel(
          {.directory = options.target_directory,
           .backend = {.device = options.device, .num_threads = options.num_threads, .isa = options.cpu_isa}}));
  const model::LoadOptions load = {
      .max_rows = kNumTexts * kMaxPrompt,
      .context = {.max_context_tokens = kMaxTokens, .num_blocks = kNumTexts * kMaxTokens / kernels::kKvBlockSize}};
  FT_ASSIGN_OR_RETURN(const kernels::MemoryNeed need, model::NeedOf(opened, load));
  const auto num_bytes = static_cast<int64_t>(need.weight_bytes + need.kv_bytes + need.pass_bytes);
  constexpr int64_t kMiB = 1 << 20;
  if (free_bytes.has_value() && num_bytes > *free_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the target takes ", num_bytes / kMiB, " MiB, and ", *free_bytes / kMiB, " MiB are free"));
  }
  spdlog::info("trying the drafter on its target, which takes {} MiB for that time", num_bytes / kMiB);
  return model::LoadModel(std::move(opened), load, nullptr);
}

absl::Status TryDrafter(DraftModel& drafter, const speculation::TargetFeatures& features,
                        model::RunnableModel& target) {
  std::vector<Reading> readings = ReadingsOf(features, target.config.num_layers);
  std::vector<model::FeaturePlane> planes;
  std::vector<int32_t> layers;
  for (const Reading& reading : readings) {
    planes.emplace_back(reading.features, *target.transformer, target.kv.num_blocks);
    while (!planes.back().Prepare()) continue;
    layers.insert(layers.end(), planes.back().layers().begin(), planes.back().layers().end());
  }
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  target.transformer->Capture(layers);
  FT_ASSIGN_OR_RETURN(std::vector<Text> texts, BeginTexts(target.tokenizer));
  Continue(target, planes, texts);
  for (const Text& text : texts) {
    const auto num_features = static_cast<int32_t>(text.token_ids.size()) - 2;
    for (size_t i = 0; i < readings.size(); ++i) {
      Score(drafter, text, planes[i].Read(text.blocks, 0, num_features), readings[i]);
    }
  }
  return Judge(readings);
}

}  // namespace foretoken::proposer
