// SPDX-License-Identifier: Apache-2.0
#include "client/generation_stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

std::optional<Distribution> MakeDistribution(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return Distribution{.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
                      .p50 = Percentile(values, 0.5),
                      .p90 = Percentile(values, 0.9),
                      .p99 = Percentile(values, 0.99)};
}

void AddInterTokenMs(std::span<const Arrival> arrivals, std::vector<double>& inter_token_ms) {
  std::map<uint32_t, absl::Duration> last;  // by sample
  for (const Arrival& arrival : arrivals) {
    const auto [before, is_first] = last.try_emplace(arrival.sample_index, arrival.since_start);
    if (is_first) continue;
    const double gap_ms = absl::ToDoubleMilliseconds(arrival.since_start - before->second);
    inter_token_ms.insert(inter_token_ms.end(), arrival.num_tokens, gap_ms / arrival.num_tokens);
    before->second = arrival.since_start;
  }
}

nlohmann::ordered_json ToJson(const std::optional<Distribution>& distribution) {
  if (!distribution.has_value()) return nullptr;
  return {
      {"mean", distribution->mean}, {"p50", distribution->p50}, {"p90", distribution->p90}, {"p99", distribution->p99}};
}

}  // namespace

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
      for (const foretoken::v1::ProposerUsage& proposer : usage.proposers()) {
        stats.proposers[proposer.proposer()].proposed_tokens += proposer.proposed_tokens();
        stats.proposers[proposer.proposer()].accepted_tokens += proposer.accepted_tokens();
      }
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
                                 {"proposers", proposers}};
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
  return line;
}

}  // namespace foretoken::client
