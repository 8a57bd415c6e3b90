// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"
#include "tests/testing/paths.h"

namespace foretoken::bench {
namespace {

constexpr absl::Duration kGap = absl::Milliseconds(150);

struct Target {
  std::string name;
  std::string directory;
  int num_requests = 0;  // measured in each way, after a third as many that are not
  int num_requests_with_gaps = 0;
  int max_tokens = 0;
};

// Every set of proposers that a request can allow.
std::vector<std::vector<std::string>> AllowedSets(const std::vector<Proposer>& proposers) {
  std::vector<std::vector<std::string>> sets;
  for (uint32_t bits = 1; bits < 1u << proposers.size(); ++bits) {
    std::vector<std::string>& set = sets.emplace_back();
    for (size_t i = 0; i < proposers.size(); ++i) {
      if ((bits >> i & 1) != 0) set.push_back(proposers[i].method);
    }
  }
  return sets;
}

using RatiosBySet = std::map<std::string, std::vector<double>>;  // the ratio of AUTO and off, for each server

absl::Status MeasureServer(Setup& setup, const Target& target, absl::Duration gap, int server, RatiosBySet* ratios) {
  FT_ASSIGN_OR_RETURN(const auto service, ServiceProcesses::Start({.model_directory = target.directory,
                                                                   .verifier_flags = setup.VerifierFlags(),
                                                                   .proposers = setup.Proposers()}));
  const auto prompts = MakeRequests(setup.prompts(), /*temperature=*/0.8, target.max_tokens);
  const int num_requests = gap > absl::ZeroDuration() ? target.num_requests_with_gaps : target.num_requests;
  std::vector<foretoken::v1::GenerateRequest> requests;
  for (int i = 0; i < num_requests; ++i) requests.push_back(prompts[i % prompts.size()]);
  const std::vector<foretoken::v1::GenerateRequest> first(requests.begin(), requests.begin() + num_requests / 3);
  // Each server meets another set first, which it knows nothing about.
  std::vector<std::vector<std::string>> sets = AllowedSets(setup.Proposers());
  std::ranges::rotate(sets, sets.begin() + (sets.size() - 1 + server) % sets.size());
  for (const std::vector<std::string>& set : sets) {
    const std::string name = absl::StrJoin(set, "+");
    const std::vector<Way> ways = {{.name = "off", .service = service.get(), .speculation = SpeculationOff()},
                                   {.name = name, .service = service.get(), .speculation = SpeculationBy(set)}};
    // The first requests are not measured, because a set's first trial belongs to its start.
    FT_RETURN_IF_ERROR(RunRounds(ways, first, {.label = name + ", before", .gap = gap}).status());
    FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.label = name, .gap = gap}));
    (*ratios)[name].push_back(TokensPerSecond(Sum(rounds.by_way[1])) / TokensPerSecond(Sum(rounds.by_way[0])));
  }
  return absl::OkStatus();
}

void Report(const std::string& what, RatiosBySet& by_set, Findings* findings) {
  for (auto& [set, ratios] : by_set) {
    std::ranges::sort(ratios);
    const std::string all =
        absl::StrJoin(ratios, " ", [](std::string* out, double ratio) { absl::StrAppendFormat(out, "%.2f", ratio); });
    findings->Add({.what = absl::StrCat(what, ", ", set, ": AUTO against off, slowest server of {", all, "}"),
                   .value = ratios.front(),
                   .unit = "x tokens/s",
                   .at_least = 0.97});
    findings->Add({.what = absl::StrCat("  ", set, ": slowest server against the fastest"),
                   .value = ratios.front() / ratios.back(),
                   .unit = "x",
                   .at_least = 0.9});
  }
}

}  // namespace

absl::Status MeasureSettling(Setup& setup, Findings* findings) {
  FT_ASSIGN_OR_RETURN(const std::string costly, setup.CostlyDirectory());
  const bool is_short = setup.options().is_short;
  const std::vector<Target> targets = {{.name = "demo target",
                                        .directory = testing::SourcePath("deploy/demo/target"),
                                        .num_requests = is_short ? 24 : 72,
                                        .num_requests_with_gaps = is_short ? 9 : 18,
                                        .max_tokens = 128},
                                       {.name = "costly target",
                                        .directory = costly,
                                        .num_requests = is_short ? 6 : 12,
                                        .num_requests_with_gaps = is_short ? 3 : 9,
                                        .max_tokens = 64}};
  const int num_servers = is_short ? 2 : 10;
  for (const Target& target : targets) {
    for (const absl::Duration gap : {absl::ZeroDuration(), kGap}) {
      RatiosBySet ratios;
      for (int server = 0; server < num_servers; ++server) {
        FT_RETURN_IF_ERROR(MeasureServer(setup, target, gap, server, &ratios));
      }
      Report(absl::StrCat(target.name, ", gaps of ", absl::FormatDuration(gap)), ratios, findings);
    }
  }
  return absl::OkStatus();
}

}  // namespace foretoken::bench
