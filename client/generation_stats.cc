// SPDX-License-Identifier: Apache-2.0
#include "client/generation_stats.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/terminal.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

// Messages within this time count as one, because they were sent together or waited together for their reader.
constexpr absl::Duration kReadTogether = absl::Milliseconds(1);

// The tokens of messages that count as one.
struct Batch {
  absl::Duration first, last;  // arrival of its first and last message
  int num_tokens = 0;
};

void AddInterTokenMs(std::span<const Arrival> arrivals, std::vector<double>& inter_token_ms) {
  std::map<uint32_t, std::vector<Batch>> batches;  // by sample
  for (const Arrival& arrival : arrivals) {
    std::vector<Batch>& of_sample = batches[arrival.sample_index];
    const absl::Duration now = arrival.since_start;
    if (of_sample.empty() || now - of_sample.back().first >= kReadTogether) of_sample.push_back({.first = now});
    of_sample.back().last = now;
    of_sample.back().num_tokens += arrival.num_tokens;
  }
  for (const auto& [sample, of_sample] : batches) {
    for (size_t i = 1; i < of_sample.size(); ++i) {
      const double gap_ms = absl::ToDoubleMilliseconds(of_sample[i].last - of_sample[i - 1].last);
      inter_token_ms.insert(inter_token_ms.end(), of_sample[i].num_tokens, gap_ms / of_sample[i].num_tokens);
    }
  }
}

void AddSpeculation(const foretoken::v1::Usage& usage, GenerationStats& stats) {
  for (const foretoken::v1::ProposerUsage& proposer : usage.proposers()) {
    ProposerCounts& counts = stats.proposers[EscapeControls(proposer.proposer())];
    counts.proposed_tokens += proposer.proposed_tokens();
    counts.accepted_tokens += proposer.accepted_tokens();
  }
  const auto num_lengths = static_cast<size_t>(usage.accepted_lengths_size());
  stats.accepted_lengths.resize(std::max(stats.accepted_lengths.size(), num_lengths));
  for (size_t length = 0; length < num_lengths; ++length) {
    stats.accepted_lengths[length] += usage.accepted_lengths(static_cast<int>(length));
  }
  stats.proposed_nodes += usage.proposed_nodes();
  stats.verified_nodes += usage.verified_nodes();
  stats.accepted_prediction_tokens += usage.accepted_prediction_tokens();
  stats.rejected_prediction_tokens += usage.rejected_prediction_tokens();
}

nlohmann::ordered_json ToJson(const std::optional<Distribution>& distribution) {
  if (!distribution.has_value()) return nullptr;
  return {
      {"mean", distribution->mean}, {"p50", distribution->p50}, {"p90", distribution->p90}, {"p99", distribution->p99}};
}

}  // namespace

std::optional<Distribution> MakeDistribution(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return Distribution{.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
                      .p50 = Percentile(values, 0.5),
                      .p90 = Percentile(values, 0.9),
                      .p99 = Percentile(values, 0.99)};
}

double Percentile(std::span<const double> sorted, double fraction) {
  const auto rank = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<int64_t>(rank - 1, 0, static_cast<int64_t>(sorted.size()) - 1)];
}

GenerationStats Summarise(std::span<const TimedGeneration> generations, absl::Duration wall) {
  GenerationStats stats{.num_requests = static_cast<int>(generations.size()), .wall_s = absl::ToDoubleSeconds(wall)};
  std::vector<double> first_token_ms;
  std::vector<double> inter_token_ms;
  uint64_t num_completed_tokens = 0;
  uint64_t num_steps = 0;
  for (const TimedGeneration& timed : generations) {
    if (!timed.status.ok()) {
      ++stats.num_failed;
      ++stats.errors[absl::StatusCodeToString(timed.status.code())];
    }
    if (!timed.arrivals.empty()) {
      first_token_ms.push_back(absl::ToDoubleMilliseconds(timed.arrivals.front().since_start));
    }
    AddInterTokenMs(timed.arrivals, inter_token_ms);
    for (const Sample& sample : timed.generation.samples) {
      stats.num_tokens += sample.token_ids.size();
      if (!sample.completion.has_value()) continue;
      const foretoken::v1::Usage& usage = sample.completion->usage();
      num_completed_tokens += usage.completion_tokens();
      num_steps += usage.steps();
      AddSpeculation(usage, stats);
    }
  }
  if (stats.wall_s > 0) stats.tokens_per_s = static_cast<double>(stats.num_tokens) / stats.wall_s;
  stats.time_to_first_token_ms = MakeDistribution(std::move(first_token_ms));
  stats.inter_token_ms = MakeDistribution(std::move(inter_token_ms));
  if (num_steps > 0) {
    stats.tokens_per_step = static_cast<double>(num_completed_tokens) / static_cast<double>(num_steps);
  }
  return stats;
}

std::vector<AcceptedShare> AcceptedShares(const GenerationStats& stats) {
  struct Group {
    const char* lengths;
    size_t first;
  };
  static constexpr Group kGroups[] = {{"0", 0}, {"1", 1}, {"2-3", 2}, {"4-7", 4}, {"8-15", 8}, {"16+", 16}};
  const std::vector<uint64_t>& steps = stats.accepted_lengths;
  const uint64_t num_steps = std::accumulate(steps.begin(), steps.end(), uint64_t{0});
  std::vector<AcceptedShare> shares;
  if (num_steps == 0) return shares;
  for (const Group& group : kGroups) shares.push_back({.lengths = group.lengths});
  size_t group = 0;
  for (size_t length = 0; length < steps.size(); ++length) {
    if (group + 1 < std::size(kGroups) && length == kGroups[group + 1].first) ++group;
    shares[group].share += static_cast<double>(steps[length]) / static_cast<double>(num_steps);
  }
  return shares;
}

nlohmann::ordered_json ToJson(const GenerationStats& stats) {
  nlohmann::ordered_json proposers = nlohmann::ordered_json::object();
  for (const auto& [name, counts] : stats.proposers) {
    proposers[name] = {{"proposed_tokens", counts.proposed_tokens}, {"accepted_tokens", counts.accepted_tokens}};
  }
  nlohmann::ordered_json json = {{"num_requests", stats.num_requests},
                                 {"num_failed", stats.num_failed},
                                 {"errors", stats.errors},
                                 {"num_tokens", stats.num_tokens},
                                 {"wall_s", stats.wall_s},
                                 {"tokens_per_s", stats.tokens_per_s},
                                 {"time_to_first_token_ms", ToJson(stats.time_to_first_token_ms)},
                                 {"inter_token_ms", ToJson(stats.inter_token_ms)},
                                 {"tokens_per_step", nullptr},
                                 {"proposers", proposers},
                                 {"accepted_lengths", stats.accepted_lengths},
                                 {"proposed_nodes", stats.proposed_nodes},
                                 {"verified_nodes", stats.verified_nodes},
                                 {"accepted_prediction_tokens", stats.accepted_prediction_tokens},
                                 {"rejected_prediction_tokens", stats.rejected_prediction_tokens}};
  if (stats.tokens_per_step.has_value()) json["tokens_per_step"] = *stats.tokens_per_step;
  return json;
}

std::string ToLine(const GenerationStats& stats) {
  std::string line = absl::StrCat(stats.num_tokens, stats.num_tokens == 1 ? " token" : " tokens");
  if (stats.inter_token_ms.has_value() && stats.inter_token_ms->mean > 0) {
    absl::StrAppendFormat(&line, ", %.1f tokens/s", 1000 / stats.inter_token_ms->mean);
  }
  if (stats.tokens_per_step.has_value()) absl::StrAppendFormat(&line, ", %.2f tokens per step", *stats.tokens_per_step);
  if (stats.time_to_first_token_ms.has_value()) {
    absl::StrAppendFormat(&line, ", first token after %.1f ms", stats.time_to_first_token_ms->mean);
  }
  for (const auto& [name, counts] : stats.proposers) {
    absl::StrAppend(&line, ", ", name, " accepted ", counts.accepted_tokens, " of ", counts.proposed_tokens);
  }
  if (stats.verified_nodes > 0) {
    absl::string_view separator = ", steps that accepted ";
    for (const AcceptedShare& share : AcceptedShares(stats)) {
      if (share.share == 0) continue;
      absl::StrAppendFormat(&line, "%s%s: %.0f%%", separator, share.lengths, 100 * share.share);
      separator = ", ";
    }
  }
  const uint64_t num_predicted = stats.accepted_prediction_tokens + stats.rejected_prediction_tokens;
  if (num_predicted > 0) {
    absl::StrAppend(&line, ", ", stats.accepted_prediction_tokens, " of ", num_predicted, " predicted tokens came");
  }
  return line;
}

}  // namespace foretoken::client
