// SPDX-License-Identifier: Apache-2.0
// foretoken simulate: how many verifiers and proposers a load needs, and where they break, from a profile that
// `foretoken bench --profile` has measured.
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/commands/clients_flag.h"
#include "client/commands/commands.h"
#include "client/simulate/profile.h"
#include "client/simulate/sizing.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(double, rate, 0, "Requests per second, at random times; 0: --clients, each with one request at a time");
ABSL_FLAG(int32_t, verifiers, 0, "Verifiers; 0: the fewest that serve the load; 1 with --clients");
ABSL_FLAG(int32_t, replicas, -1, "Replicas of the proposers; -1: the fewest that answer in time; 0: no speculation");
ABSL_FLAG(absl::Duration, max_first_token, absl::Seconds(1),
          "Longest time to the first token that 99 of 100 requests may have; more counts as not served");
ABSL_FLAG(double, seconds, 60, "Simulated seconds; the first third is not counted");
ABSL_FLAG(int32_t, max_running, 64, "The verifier's --max_running_samples");
ABSL_FLAG(int32_t, max_queued, 256, "The verifier's --max_queued_requests");
ABSL_FLAG(uint64_t, random_seed, 1, "Seed of the arrivals, the lengths and the accepted guesses");

namespace foretoken::client {
namespace {

absl::StatusOr<Profile> ReadProfile(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) return absl::InvalidArgumentError("expected one argument: the file of a profile");
  std::ifstream file(arguments.front());
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", arguments.front()));
  return ParseProfile(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::string Milliseconds(const std::optional<Distribution>& distribution, double Distribution::*member) {
  return distribution.has_value() ? absl::StrFormat("%.1f", (*distribution).*member) : "-";
}

void PrintRow(absl::string_view name, absl::string_view value) {
  std::cout << absl::StrFormat("%-28s%18s\n", name, value);
}

void Print(const Sizing& sizing) {
  const SimulationResult& result = sizing.result;
  PrintRow("verifiers", absl::StrCat(sizing.cluster.num_verifiers));
  PrintRow("replicas of proposers", absl::StrCat(sizing.cluster.num_proposers.value_or(sizing.cluster.num_verifiers)));
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
  PrintRow("late answers of proposers", absl::StrFormat("%.1f%%", 100 * result.late_share));
  PrintRow("verifiers are busy", absl::StrFormat("%.0f%%", 100 * result.verifier_busy_share));
  PrintRow("proposers are busy", absl::StrFormat("%.0f%%", 100 * result.proposer_busy_share));
  if (sizing.breaking_rate.has_value()) {
    PrintRow("breaks at requests/s", absl::StrFormat("%.2f", *sizing.breaking_rate));
  }
  std::cout << std::flush;
}

nlohmann::ordered_json ToJson(const Sizing& sizing) {
  const SimulationResult& result = sizing.result;
  const auto distribution = [](const std::optional<Distribution>& d) -> nlohmann::ordered_json {
    if (!d.has_value()) return nullptr;
    return {{"mean", d->mean}, {"p50", d->p50}, {"p90", d->p90}, {"p99", d->p99}};
  };
  nlohmann::ordered_json json = {{"verifiers", sizing.cluster.num_verifiers},
                                 {"replicas", sizing.cluster.num_proposers.value_or(sizing.cluster.num_verifiers)},
                                 {"requests_per_s", result.requests_per_s},
                                 {"tokens_per_s", result.tokens_per_s},
                                 {"time_to_first_token_ms", distribution(result.time_to_first_token_ms)},
                                 {"inter_token_ms", distribution(result.inter_token_ms)},
                                 {"refused_share", result.refused_share},
                                 {"tokens_per_step", result.tokens_per_step},
                                 {"late_share", result.late_share},
                                 {"verifier_busy_share", result.verifier_busy_share},
                                 {"proposer_busy_share", result.proposer_busy_share}};
  if (sizing.breaking_rate.has_value()) json["breaking_rate"] = *sizing.breaking_rate;
  return json;
}

absl::Status RunSimulation(const std::vector<std::string>& arguments) {
  FT_ASSIGN_OR_RETURN(const Profile profile, ReadProfile(arguments));
  const double rate = absl::GetFlag(FLAGS_rate);
  const SimulatedLoad load = {.rate = rate,
                              .num_clients = rate == 0 ? absl::GetFlag(FLAGS_clients) : 0,
                              .seconds = absl::GetFlag(FLAGS_seconds),
                              .seed = absl::GetFlag(FLAGS_random_seed)};
  SizingQuestion question = {
      .cluster = {.max_running = absl::GetFlag(FLAGS_max_running), .max_queued = absl::GetFlag(FLAGS_max_queued)},
      .max_first_token_ms = absl::ToDoubleMilliseconds(absl::GetFlag(FLAGS_max_first_token))};
  if (const int32_t num = absl::GetFlag(FLAGS_verifiers); num != 0) question.num_verifiers = num;
  if (const int32_t num = absl::GetFlag(FLAGS_replicas); num != -1) question.num_proposers = num;
  FT_ASSIGN_OR_RETURN(const Sizing sizing, Size(profile, question, load));
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << ToJson(sizing).dump(2) << std::endl;
  } else {
    Print(sizing);
  }
  return absl::OkStatus();
}

}  // namespace

int RunSimulate(const std::vector<std::string>& arguments) { return ExitCode(RunSimulation(arguments)); }

}  // namespace foretoken::client
