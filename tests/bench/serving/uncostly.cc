// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"
#include "tests/testing/paths.h"

namespace foretoken::bench {

absl::Status MeasureUncostly(Setup& setup, Findings* findings) {
  // Each proposer has a verifier of its own, because a verifier learns the gain of proposers from all requests
  // together.
  std::vector<std::unique_ptr<ServiceProcesses>> services;
  std::vector<Way> ways;
  for (const Proposer& proposer : setup.Proposers()) {
    FT_ASSIGN_OR_RETURN(services.emplace_back(),
                        ServiceProcesses::Start({.model_directory = testing::SourcePath("deploy/demo/target"),
                                                 .verifier_flags = setup.VerifierFlags(),
                                                 .proposers = {proposer}}));
    ServiceProcesses* const service = services.back().get();
    if (ways.empty()) ways.push_back({.name = "off", .service = service, .speculation = SpeculationOff()});
    ways.push_back({.name = proposer.method, .service = service, .speculation = SpeculationBy({proposer.method})});
  }
  constexpr int kMaxTokens = 128;
  for (const double temperature : {0.0, 0.8}) {
    const std::string label = absl::StrCat("uncostly, temperature ", temperature);
    const auto requests = MakeRequests(setup.prompts(), temperature, kMaxTokens);
    const std::vector<foretoken::v1::GenerateRequest> first(requests.begin(), requests.begin() + 2);
    FT_RETURN_IF_ERROR(RunRounds(ways, first, {.label = label + ", before"}).status());
    FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.label = label}));
    const Turn off = Sum(rounds.by_way[0]);
    findings->Add({.what = absl::StrCat("a small target, temperature ", temperature, ", a step without speculation"),
                   .value = 1e3 * off.wall_s / off.num_steps,
                   .unit = "ms"});
    for (size_t w = 1; w < ways.size(); ++w) {
      Finding finding = MedianFinding(
          absl::StrCat("  ", ways[w].name, " against off"),
          client::MedianInterval(Ratios(rounds.by_way[w], rounds.by_way[0], TokensPerSecond)), "x tokens/s");
      finding.at_least = 0.97;
      findings->Add(finding);
      findings->Add({.what = "    tokens per step", .value = TokensPerStep(Sum(rounds.by_way[w])), .unit = "tokens"});
    }
  }
  return absl::OkStatus();
}

}  // namespace foretoken::bench
