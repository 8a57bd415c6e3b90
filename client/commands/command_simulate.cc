// SPDX-License-Identifier: Apache-2.0
// foretoken simulate: how many verifiers and proposers a load needs, and where they break, from a profile that
// `foretoken bench --profile` has measured.
#include <algorithm>
#include <iostream>
#include <limits>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/commands/commands.h"
#include "client/commands/load_flags.h"
#include "client/simulate/profile.h"
#include "client/simulate/sizing.h"
#include "client/terminal.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(int32_t, verifiers, 0, "Verifiers; 0: the fewest that serve the load; 1 with --clients");
ABSL_FLAG(std::string, replicas, "",
          "Replicas of every proposer, or of those named, as draft=8,ngram=1; empty: the fewest that answer in time; "
          "0: no speculation");
ABSL_FLAG(absl::Duration, max_first_token, absl::Seconds(1),
          "Longest time to the first token that 99 of 100 requests may have; more counts as not served");
ABSL_FLAG(double, seconds, 60,
          "Simulated seconds, three times as many as the longest request takes; the first third is not counted");
ABSL_FLAG(int32_t, max_running, 64, "The verifier's --max_running_samples");
ABSL_FLAG(int32_t, max_queued, 256, "The verifier's --max_queued_requests");
ABSL_FLAG(int32_t, max_step_rows, foretoken::client::PromptBounds().max_step_rows,
          "The verifier's flag of this name: tokens in one forward pass");
ABSL_FLAG(double, max_inter_token_growth, foretoken::client::PromptBounds().max_inter_token_growth,
          "The verifier's flag of this name: how many times longer prompts may make a step while others stream");
ABSL_FLAG(absl::Duration, burst_window, absl::Milliseconds(foretoken::client::PromptBounds().burst_window_ms),
          "The verifier's flag of this name: prompts that begin up to this long after a stream's first token belong to "
          "its burst");
ABSL_FLAG(int32_t, max_burst_prompt_tokens, foretoken::client::PromptBounds().max_burst_prompt_tokens,
          "The verifier's flag of this name: a longer prompt belongs to no burst");
ABSL_FLAG(uint64_t, random_seed, 1, "Seed of the arrivals, the lengths and the accepted guesses");

namespace foretoken::client {
namespace {

absl::StatusOr<Profile> ReadProfile(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) return absl::InvalidArgumentError("expected one argument: the file of a profile");
  FT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(arguments.front()));
  return ParseProfile(text);
}

// The flag --replicas, into the question.
absl::Status ReadReplicas(const Profile& profile, SizingQuestion& question) {
  const std::string flag = absl::GetFlag(FLAGS_replicas);
  question.cluster.speculates = flag != "0";
  question.num_replicas.resize(profile.proposers.size());
  if (flag.empty() || flag == "0") return absl::OkStatus();
  int32_t num = 0;
  if (absl::SimpleAtoi(flag, &num)) {
    std::ranges::fill(question.num_replicas, num);
    return absl::OkStatus();
  }
  for (const absl::string_view part : absl::StrSplit(flag, ',')) {
    const std::pair<absl::string_view, absl::string_view> named = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto found = std::ranges::find(profile.proposers, named.first, &ProfileProposer::name);
    if (found == profile.proposers.end() || !absl::SimpleAtoi(named.second, &num)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--replicas: expected a number, or NAME=NUMBER with a proposer of the profile, got ", part));
    }
    question.num_replicas[found - profile.proposers.begin()] = num;
  }
  return absl::OkStatus();
}

SimulatedCluster ClusterFromFlags() {
  return {.max_running = absl::GetFlag(FLAGS_max_running),
          .max_queued = absl::GetFlag(FLAGS_max_queued),
          .prompts = {.max_step_rows = absl::GetFlag(FLAGS_max_step_rows),
                      .max_inter_token_growth = absl::GetFlag(FLAGS_max_inter_token_growth),
                      .max_burst_prompt_tokens = absl::GetFlag(FLAGS_max_burst_prompt_tokens),
                      .burst_window_ms = absl::ToDoubleMilliseconds(absl::GetFlag(FLAGS_burst_window))}};
}

std::string Milliseconds(const std::optional<Distribution>& distribution, double Distribution::*member) {
  return distribution.has_value() ? absl::StrFormat("%.1f", (*distribution).*member) : "-";
}

void PrintRow(absl::string_view name, absl::string_view value) {
  std::cout << absl::StrFormat("%-28s%18s\n", EscapeControls(name), value);
}

void Print(const Profile& profile, const Sizing& sizing) {
  const SimulationResult& result = sizing.result;
  PrintRow("verifiers", absl::StrCat(sizing.cluster.num_verifiers));
  for (size_t i = 0; i < result.proposers.size(); ++i) {
    PrintRow(absl::StrCat("replicas of ", profile.proposers[i].name), absl::StrCat(sizing.cluster.num_replicas[i]));
  }
  PrintRow("requests/s", absl::StrFormat("%.2f", result.requests_per_s));
  PrintRow("tokens/s", absl::StrFormat("%.2f", result.tokens_per_s));
  constexpr std::pair<const char*, double Distribution::*> kQuantiles[] = {
      {"p50", &Distribution::p50}, {"p90", &Distribution::p90}, {"p99", &Distribution::p99}};
  for (const auto& [name, member] : kQuantiles) {
    PrintRow(absl::StrCat("first token ms, ", name), Milliseconds(result.time_to_first_token_ms, member));
  }
  for (const auto& [name, member] : kQuantiles) {
    PrintRow(absl::StrCat("inter-token ms, ", name), Milliseconds(result.inter_token_ms, member));
  }
  PrintRow("refused", absl::StrFormat("%.1f%%", 100 * result.refused_share));
  PrintRow("tokens per step", absl::StrFormat("%.2f", result.tokens_per_step));
  for (size_t i = 0; i < result.proposers.size(); ++i) {
    PrintRow(absl::StrCat("late answers of ", profile.proposers[i].name),
             absl::StrFormat("%.1f%%", 100 * result.proposers[i].late_share));
  }
  PrintRow("verifiers are busy", absl::StrFormat("%.0f%%", 100 * result.verifier_busy_share));
  for (size_t i = 0; i < result.proposers.size(); ++i) {
    PrintRow(absl::StrCat(profile.proposers[i].name, " is busy"),
             absl::StrFormat("%.0f%%", 100 * result.proposers[i].busy_share));
  }
  if (sizing.breaking_rate.has_value()) {
    PrintRow("breaks at requests/s", absl::StrFormat("%.2f", *sizing.breaking_rate));
  }
  std::cout << std::flush;
}

nlohmann::ordered_json ToJson(const Profile& profile, const Sizing& sizing) {
  const SimulationResult& result = sizing.result;
  const auto distribution = [](const std::optional<Distribution>& d) -> nlohmann::ordered_json {
    if (!d.has_value()) return nullptr;
    return {{"mean", d->mean}, {"p50", d->p50}, {"p90", d->p90}, {"p99", d->p99}};
  };
  nlohmann::ordered_json json = {{"verifiers", sizing.cluster.num_verifiers},
                                 {"requests_per_s", result.requests_per_s},
                                 {"tokens_per_s", result.tokens_per_s},
                                 {"time_to_first_token_ms", distribution(result.time_to_first_token_ms)},
                                 {"inter_token_ms", distribution(result.inter_token_ms)},
                                 {"refused_share", result.refused_share},
                                 {"tokens_per_step", result.tokens_per_step},
                                 {"verifier_busy_share", result.verifier_busy_share},
                                 {"proposers", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < result.proposers.size(); ++i) {
    json["proposers"].push_back({{"name", profile.proposers[i].name},
                                 {"replicas", sizing.cluster.num_replicas[i]},
                                 {"busy_share", result.proposers[i].busy_share},
                                 {"late_share", result.proposers[i].late_share}});
  }
  if (sizing.breaking_rate.has_value()) json["breaking_rate"] = *sizing.breaking_rate;
  return json;
}

absl::Status RunSimulation(const std::vector<std::string>& arguments) {
  if (absl::GetFlag(FLAGS_max_first_token) <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("--max_first_token: expected more than 0, got ",
                                                   absl::FormatDuration(absl::GetFlag(FLAGS_max_first_token))));
  }
  if (absl::GetFlag(FLAGS_rate) != 0 && absl::GetFlag(FLAGS_clients) != 1) {
    return absl::InvalidArgumentError("--rate: expected no --clients with it");
  }
  FT_ASSIGN_OR_RETURN(const Profile profile, ReadProfile(arguments));
  const double rate = absl::GetFlag(FLAGS_rate);
  const SimulatedLoad load = {.rate = rate,
                              .num_clients = rate == 0 ? absl::GetFlag(FLAGS_clients) : 0,
                              .seconds = absl::GetFlag(FLAGS_seconds),
                              .seed = absl::GetFlag(FLAGS_random_seed)};
  SizingQuestion question = {.cluster = ClusterFromFlags(),
                             .max_first_token_ms = absl::ToDoubleMilliseconds(absl::GetFlag(FLAGS_max_first_token))};
  if (const int32_t num = absl::GetFlag(FLAGS_verifiers); num != 0) question.num_verifiers = num;
  FT_RETURN_IF_ERROR(ReadReplicas(profile, question));
  FT_ASSIGN_OR_RETURN(const Sizing sizing, Size(profile, question, load));
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << JsonText(ToJson(profile, sizing)) << std::endl;
  } else {
    Print(profile, sizing);
  }
  return absl::OkStatus();
}

}  // namespace

int RunSimulate(const std::vector<std::string>& arguments) { return ExitCode(RunSimulation(arguments)); }

}  // namespace foretoken::client
