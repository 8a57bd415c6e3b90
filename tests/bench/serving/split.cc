// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"
#include "tests/testing/paths.h"

namespace foretoken::bench {

absl::Status MeasureSplit(Setup& setup, Findings* findings) {
  FT_ASSIGN_OR_RETURN(const std::string directory, setup.CostlyDirectory());
  FT_ASSIGN_OR_RETURN(ServiceProcesses* const split, setup.Costly());
  FT_ASSIGN_OR_RETURN(const std::unique_ptr<ServiceProcesses> embedded,
                      ServiceProcesses::Start({.model_directory = directory,
                                               .verifier_flags = setup.VerifierFlags(),
                                               .proposers = setup.Proposers(),
                                               .placement = Placement::kEmbedded}));
  const auto speculation = SpeculationBy({"suffix", "draft"});
  const std::vector<Way> ways = {{.name = "processes", .service = split, .speculation = speculation},
                                 {.name = "embedded", .service = embedded.get(), .speculation = speculation}};
  const auto requests = MakeRequests(setup.prompts(), /*temperature=*/0.8, setup.options().max_tokens);
  const std::vector<foretoken::v1::GenerateRequest> first(requests.begin(), requests.begin() + 2);
  FT_RETURN_IF_ERROR(RunRounds(ways, first, {.label = "split, before"}).status());
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.label = "split"}));
  Finding finding =
      MedianFinding("suffix+draft as processes against embedded",
                    client::MedianInterval(Ratios(rounds.by_way[0], rounds.by_way[1], TokensPerSecond)), "x tokens/s");
  finding.at_least = 0.95;
  findings->Add(finding);
  for (size_t w = 0; w < ways.size(); ++w) {
    const Turn all = Sum(rounds.by_way[w]);
    findings->Add(
        {.what = absl::StrCat("  tokens per step, ", ways[w].name), .value = TokensPerStep(all), .unit = "tokens"});
    findings->Add({.what = "    computing", .value = 1e3 * ComputeSPerStep(all), .unit = "ms a step"});
    findings->Add(
        {.what = "    waiting for proposals", .value = 1e3 * all.wait_s / all.num_steps, .unit = "ms a step"});
    findings->Add(
        {.what = "    the engine's own work", .value = 1e3 * all.host_s / all.num_steps, .unit = "ms a step"});
  }
  return absl::OkStatus();
}

}  // namespace foretoken::bench
