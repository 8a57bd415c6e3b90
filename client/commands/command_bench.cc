// SPDX-License-Identifier: Apache-2.0
// foretoken bench: measures a load of requests over a list of prompts.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <ostream>
#include <span>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/commands/connect_flags.h"
#include "client/commands/interrupt.h"
#include "client/commands/load_flags.h"
#include "client/commands/progress_bar.h"
#include "client/commands/prompts.h"
#include "client/commands/request_flags.h"
#include "client/commands/result_file.h"
#include "client/comparison.h"
#include "client/generation_stats.h"
#include "client/load.h"
#include "client/simulate/profile.h"
#include "client/terminal.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(int32_t, requests, 0, "Number of requests to send; they take the prompts in turn; default: each prompt once");
ABSL_FLAG(bool, compare, false,
          "Send each request with speculation off and on; on is auto, or always with --speculation=always; print the "
          "ratio, and fail unless all token ids are equal");
ABSL_FLAG(std::string, json_out, "", "File that also gets the result, as JSON; - is standard output");
ABSL_FLAG(
    std::string, profile, "",
    "File that gets a profile for `foretoken simulate`, or - for standard output: the requests are sent with 1, 2, 4 "
    "... clients up to --clients, with speculation and without; the server needs --allow_step_reports");

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;

constexpr int kMaxClients = 1024;

absl::StatusOr<std::vector<GenerateRequest>> RequestsFromFlags(const std::vector<std::string>& arguments) {
  FT_ASSIGN_OR_RETURN(const GenerateRequest request, RequestFromFlags());
  if (!request.request_id().empty()) return absl::InvalidArgumentError("--request_id: bench sends many requests");
  if (absl::GetFlag(FLAGS_compare)) FT_RETURN_IF_ERROR(CheckKeepsTokens(request));
  if (absl::GetFlag(FLAGS_compare) || !absl::GetFlag(FLAGS_profile).empty()) {
    FT_RETURN_IF_ERROR(CheckSpeculates(request));
  }
  FT_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, PromptsFromFlags(arguments));
  const int num_flag = absl::GetFlag(FLAGS_requests);
  if (num_flag < 0) return absl::InvalidArgumentError(absl::StrCat("--requests: expected at least 0, got ", num_flag));
  std::vector<GenerateRequest> requests(num_flag == 0 ? prompts.size() : num_flag, request);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].set_text(prompts[i % prompts.size()]);
  return requests;
}

bool IsStandardOutput(const std::string& path) { return path == "-" || path == "/dev/stdout"; }

// The stream that gets the table. JSON has standard output for itself.
std::ostream& TableStream() {
  const bool is_for_json =
      IsStandardOutput(absl::GetFlag(FLAGS_json_out)) || IsStandardOutput(absl::GetFlag(FLAGS_profile));
  return is_for_json ? std::cerr : std::cout;
}

struct Column {
  std::string title;
  const GenerationStats& stats;
};

std::string Number(std::optional<double> value) { return value.has_value() ? absl::StrFormat("%.2f", *value) : "-"; }

std::string Quantile(const std::optional<Distribution>& distribution, double Distribution::*member) {
  return distribution.has_value() ? Number((*distribution).*member) : "-";
}

// Prints one row: its name, and one value per column.
template <typename Read>
void PrintRow(absl::string_view name, std::span<const Column> columns, Read read) {
  std::ostream& table = TableStream();
  table << absl::StrFormat("%-28s", name);
  for (const Column& column : columns) table << absl::StrFormat("%18s", read(column.stats));
  table << "\n";
}

void PrintTable(std::span<const Column> columns) {
  using Stats = GenerationStats;
  std::ostream& table = TableStream();
  if (columns.size() > 1) {
    table << absl::StrFormat("%-28s", "");
    for (const Column& column : columns) table << absl::StrFormat("%18s", column.title);
    table << "\n";
  }
  PrintRow("requests", columns, [](const Stats& s) { return absl::StrCat(s.num_requests); });
  PrintRow("tokens", columns, [](const Stats& s) { return absl::StrCat(s.num_tokens); });
  PrintRow("tokens/s", columns, [](const Stats& s) { return Number(s.tokens_per_s); });
  constexpr std::pair<const char*, double Distribution::*> kQuantiles[] = {
      {"p50", &Distribution::p50}, {"p90", &Distribution::p90}, {"p99", &Distribution::p99}};
  for (const auto& [name, member] : kQuantiles) {
    PrintRow(absl::StrCat("first token ms, ", name), columns,
             [m = member](const Stats& s) { return Quantile(s.time_to_first_token_ms, m); });
  }
  for (const auto& [name, member] : kQuantiles) {
    PrintRow(absl::StrCat("inter-token ms, ", name), columns,
             [m = member](const Stats& s) { return Quantile(s.inter_token_ms, m); });
  }
  PrintRow("tokens per step", columns, [](const Stats& s) { return Number(s.tokens_per_step); });
  const std::vector<AcceptedShare> shares = AcceptedShares(columns.back().stats);
  for (size_t i = 0; i < shares.size(); ++i) {
    PrintRow(absl::StrCat("steps that accepted ", shares[i].lengths), columns, [i](const Stats& s) {
      const std::vector<AcceptedShare> of_column = AcceptedShares(s);
      return of_column.empty() ? std::string("-") : absl::StrFormat("%.0f%%", 100 * of_column[i].share);
    });
  }
  PrintRow("tree nodes verified", columns,
           [](const Stats& s) { return absl::StrCat(s.verified_nodes, " of ", s.proposed_nodes); });
  for (const auto& [name, counts] : columns.back().stats.proposers) {
    PrintRow(absl::StrCat(name, " accepted"), columns, [&name = name](const Stats& s) {
      const auto found = s.proposers.find(name);
      if (found == s.proposers.end()) return std::string("-");
      return absl::StrCat(found->second.accepted_tokens, " of ", found->second.proposed_tokens);
    });
  }
  if (columns.back().stats.accepted_prediction_tokens + columns.back().stats.rejected_prediction_tokens > 0) {
    PrintRow("predicted tokens that came", columns, [](const Stats& s) {
      return absl::StrCat(s.accepted_prediction_tokens, " of ",
                          s.accepted_prediction_tokens + s.rejected_prediction_tokens);
    });
  }
  for (const Column& column : columns) {
    for (const auto& [code, count] : column.stats.errors) {
      table << absl::StrFormat("%-28s%18d %s\n", absl::StrCat("failed, ", code), count, column.title);
    }
  }
  table << std::flush;
}

// A run may take hours, so the place of its result is checked before it. For a new file that is its directory.
absl::Status CheckPlace(absl::string_view flag, const std::string& path) {
  if (path.empty() || IsStandardOutput(path)) return absl::OkStatus();
  std::error_code ignored;
  std::filesystem::path place = path;
  if (!std::filesystem::exists(place, ignored)) place = place.has_parent_path() ? place.parent_path() : ".";
  const bool is_directory = std::filesystem::is_directory(place, ignored);
  if (is_directory == (place != path) && access(place.c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": cannot write ", path));
}

// An empty path takes nothing.
absl::Status WriteFile(absl::string_view flag, const std::string& path, const nlohmann::ordered_json& json) {
  if (path.empty()) return absl::OkStatus();
  if (IsStandardOutput(path)) {
    std::cout << JsonText(json) << std::endl;
    return absl::OkStatus();  // main looks at the stream
  }
  const absl::Status status = WriteResultFile(path, JsonText(json) + "\n");
  return {status.code(), absl::StrCat(flag, ": ", status.message())};
}

absl::Status WriteJson(const nlohmann::ordered_json& json) {
  return WriteFile("--json_out", absl::GetFlag(FLAGS_json_out), json);
}

// Returns the first error with the number of failed requests.
absl::Status CheckAllOk(const GenerationStats& stats, const absl::Status& first_error) {
  if (stats.num_failed == 0) return absl::OkStatus();
  return {first_error.code(), absl::StrCat(stats.num_failed, " of ", stats.num_requests,
                                           " requests failed; the first with: ", first_error.message())};
}

// Runs `run(on_done)` with a progress bar, and keeps the first error of its requests.
template <typename Run>
auto WithProgress(size_t num_requests, absl::Status& first_error, Run run) {
  ProgressBar progress(static_cast<int>(num_requests));
  return run([&](const TimedGeneration& timed) {
    uint64_t num_tokens = 0;
    for (const Sample& sample : timed.generation.samples) num_tokens += sample.token_ids.size();
    progress.Advance(num_tokens);
    first_error.Update(timed.status);
  });
}

absl::Status MeasureOnce(GenerationClient& client, std::span<const GenerateRequest> requests,
                         const LoadOptions& options) {
  absl::Status first_error;
  const LoadResult result = WithProgress(
      requests.size(), first_error, [&](const auto& on_done) { return RunLoad(client, requests, options, on_done); });
  const GenerationStats stats = Summarise(result.generations, result.wall);
  const absl::Status written = WriteJson(ToJson(stats));
  PrintTable(std::vector<Column>{{"", stats}});
  if (result.num_sent_late > 0) {
    std::cerr << "foretoken: " << result.num_sent_late << " requests were sent late, because " << options.num_clients
              << " others were running; their times begin when they were sent\n";
  }
  FT_RETURN_IF_ERROR(written);
  return CheckAllOk(stats, first_error);
}

absl::Status MeasureBothWays(GenerationClient& client, std::span<const GenerateRequest> requests,
                             const LoadOptions& options) {
  absl::Status first_error;
  const Comparison comparison = WithProgress(2 * requests.size(), first_error, [&](const auto& on_done) {
    return Compare(client, requests, options, on_done);
  });
  const absl::Status written = WriteJson(ToJson(comparison));
  PrintTable(std::vector<Column>{{"speculation off", comparison.off}, {"speculation on", comparison.on}});
  TableStream() << Verdict(comparison) << std::flush;
  FT_RETURN_IF_ERROR(written);
  FT_RETURN_IF_ERROR(CheckAllOk(comparison.off, first_error));
  FT_RETURN_IF_ERROR(CheckAllOk(comparison.on, first_error));
  if (!comparison.AllEqual()) return absl::DataLossError("speculation changed the output");
  return absl::OkStatus();
}

// The requests of one run of a profile. Each run is a tenant of its own, so it finds no prompt of another run in the
// prefix cache, and proposers remember no output of another run.
std::vector<GenerateRequest> OfRun(std::span<const GenerateRequest> requests, int num_clients, bool is_speculative) {
  std::vector<GenerateRequest> run;
  for (size_t i = 0; i < requests.size(); ++i) {
    GenerateRequest& request = run.emplace_back(OneWay(requests[i], is_speculative, i));
    request.set_tenant(absl::StrCat(request.tenant(), "/clients-", num_clients));
    // About one request at a time: a report tells of the whole step, and reports of all would make steps longer.
    request.mutable_speculation()->set_report_steps(i % static_cast<size_t>(num_clients) == 0);
  }
  return run;
}

absl::Status MeasureProfile(GenerationClient& client, std::span<const GenerateRequest> requests,
                            const LoadOptions& options) {
  ProfileBuilder builder;
  absl::Status first_error;
  for (int num_clients = 1;; num_clients = std::min(2 * num_clients, options.num_clients)) {
    for (const bool is_speculative : {true, false}) {
      const std::vector<GenerateRequest> run = OfRun(requests, num_clients, is_speculative);
      const LoadResult result = WithProgress(run.size(), first_error, [&](const auto& on_done) {
        return RunLoad(client, run, {.num_clients = num_clients, .cancellation = options.cancellation}, on_done);
      });
      const GenerationStats stats = Summarise(result.generations, result.wall);
      FT_RETURN_IF_ERROR(CheckAllOk(stats, first_error));
      TableStream() << absl::StrFormat("%d clients, speculation %-4s%12.2f tokens/s\n", num_clients,
                                       is_speculative ? "on" : "off", stats.tokens_per_s)
                    << std::flush;
      builder.Add(result.generations, is_speculative);
    }
    if (num_clients == options.num_clients) break;
  }
  FT_ASSIGN_OR_RETURN(const foretoken::v1::GetModelInfoResponse info, client.GetModelInfo());
  FT_ASSIGN_OR_RETURN(const Profile profile, builder.Build(info.model()));
  return WriteFile("--profile", absl::GetFlag(FLAGS_profile), ToJson(profile));
}

absl::StatusOr<LoadOptions> LoadFromFlags() {
  LoadOptions options = {.num_clients = absl::GetFlag(FLAGS_clients), .rate = absl::GetFlag(FLAGS_rate)};
  if (options.num_clients < 1 || options.num_clients > kMaxClients) {
    return absl::InvalidArgumentError(
        absl::StrCat("--clients: expected 1 to ", kMaxClients, ", got ", options.num_clients));
  }
  if (options.rate == 0) return options;
  if (!(options.rate >= 0.001 && options.rate <= 10'000)) {
    return absl::InvalidArgumentError(absl::StrCat("--rate: expected 0.001 to 10000, or 0, got ", options.rate));
  }
  if (options.num_clients != 1) return absl::InvalidArgumentError("--rate: expected no --clients with it");
  options.num_clients = kMaxClients;
  return options;
}

absl::Status Bench(const std::vector<std::string>& arguments) {
  FT_RETURN_IF_ERROR(CheckPlace("--json_out", absl::GetFlag(FLAGS_json_out)));
  FT_RETURN_IF_ERROR(CheckPlace("--profile", absl::GetFlag(FLAGS_profile)));
  FT_ASSIGN_OR_RETURN(const std::vector<GenerateRequest> requests, RequestsFromFlags(arguments));
  Cancellation cancellation;
  FT_ASSIGN_OR_RETURN(LoadOptions options, LoadFromFlags());
  options.cancellation = &cancellation;
  const InterruptWatcher interrupt(cancellation);
  FT_ASSIGN_OR_RETURN(GenerationClient client, ConnectFromFlags({}, &cancellation));
  const bool writes_profile = !absl::GetFlag(FLAGS_profile).empty();
  // A reader of the table that ends early must not lose the file.
  if (writes_profile || !absl::GetFlag(FLAGS_json_out).empty()) std::signal(SIGPIPE, SIG_IGN);
  if (writes_profile && (absl::GetFlag(FLAGS_compare) || !absl::GetFlag(FLAGS_json_out).empty())) {
    return absl::InvalidArgumentError("--profile: expected neither --compare nor --json_out with it");
  }
  if (options.rate > 0 && (writes_profile || absl::GetFlag(FLAGS_compare))) {
    return absl::InvalidArgumentError("--rate: expected neither --compare nor --profile with it");
  }
  if (writes_profile) return MeasureProfile(client, requests, options);
  return absl::GetFlag(FLAGS_compare) ? MeasureBothWays(client, requests, options)
                                      : MeasureOnce(client, requests, options);
}

}  // namespace

int RunBench(const std::vector<std::string>& arguments) { return ExitCode(Bench(arguments)); }

}  // namespace foretoken::client
