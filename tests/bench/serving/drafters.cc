// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"

namespace foretoken::bench {
namespace {

const std::vector<std::vector<std::string>> kSets = {{"ngram"},  {"suffix"},           {"draft"},
                                                     {"eagle3"}, {"suffix", "eagle3"}, {"suffix", "draft", "eagle3"}};
const std::vector<std::string> kBestSet = {"suffix", "eagle3"};
constexpr double kFeatureBytes = 2 * 256;  // the demo head's projection gives 256 numbers in bf16

struct Speedup {
  double temperature;
  double at_least;  // of the best set, against no speculation
};
constexpr Speedup kSpeedups[] = {{.temperature = 0, .at_least = 3.5}, {.temperature = 0.8, .at_least = 2.5}};

void AddRatio(const std::string& what, const std::vector<double>& ratios, std::optional<double> at_least,
              Findings* findings) {
  Finding finding = MedianFinding(what, client::MedianInterval(ratios), "x tokens/s");
  finding.at_least = at_least;
  findings->Add(finding);
}

absl::Status MeasureSets(Setup& setup, ServiceProcesses* service, const Speedup& wanted, Findings* findings) {
  std::vector<Way> ways = {{.name = "off", .service = service, .speculation = SpeculationOff()}};
  for (const std::vector<std::string>& methods : kSets) {
    ways.push_back({.name = absl::StrJoin(methods, "+"), .service = service, .speculation = SpeculationBy(methods)});
  }
  const auto requests = MakeRequests(setup.prompts(), wanted.temperature, setup.options().max_tokens);
  const std::string label = absl::StrCat("drafters at temperature ", wanted.temperature);
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.label = label}));
  findings->Add({.what = absl::StrCat(label, ", no speculation"),
                 .value = TokensPerSecond(Sum(rounds.by_way[0])),
                 .unit = "tokens/s"});
  for (size_t w = 1; w < ways.size(); ++w) {
    const bool is_best = kSets[w - 1] == kBestSet;
    AddRatio(absl::StrCat("  ", ways[w].name), Ratios(rounds.by_way[w], rounds.by_way[0], TokensPerSecond),
             is_best ? std::optional(wanted.at_least) : std::nullopt, findings);
    findings->Add({.what = "    tokens per step", .value = TokensPerStep(Sum(rounds.by_way[w])), .unit = "tokens"});
  }
  return absl::OkStatus();
}

// As a process against inside the verifier, and the bytes of features for each token of prompt and output.
absl::Status MeasureSplitDrafter(Setup& setup, const std::string& directory, Findings* findings) {
  std::vector<std::unique_ptr<ServiceProcesses>> services;
  for (const Placement placement : {Placement::kProcesses, Placement::kEmbedded}) {
    FT_ASSIGN_OR_RETURN(services.emplace_back(), ServiceProcesses::Start({.model_directory = directory,
                                                                          .verifier_flags = setup.VerifierFlags(),
                                                                          .proposers = {setup.Eagle3()},
                                                                          .placement = placement}));
  }
  const auto speculation = SpeculationBy({"eagle3"});
  const std::vector<Way> ways = {{.name = "process", .service = services[0].get(), .speculation = speculation},
                                 {.name = "embedded", .service = services[1].get(), .speculation = speculation}};
  const auto requests = MakeRequests(setup.prompts(), /*temperature=*/0.8, setup.options().max_tokens);
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.label = "drafter split"}));
  AddRatio("eagle3 as a process against embedded", Ratios(rounds.by_way[0], rounds.by_way[1], TokensPerSecond), 0.9,
           findings);
  for (size_t w = 0; w < ways.size(); ++w) {
    const testing::MetricsPage page = services[w]->verifier().Metrics();
    const double num_positions = testing::SumOf(page, "foretoken_generated_tokens_total") +
                                 testing::SumOf(page, "foretoken_prompt_tokens_total");
    findings->Add({.what = absl::StrCat("  bytes of features per token, ", ways[w].name),
                   .value = testing::SumOf(page, "foretoken_proposer_feature_bytes_total") / num_positions,
                   .unit = "bytes",
                   .at_most = kFeatureBytes});
  }
  return absl::OkStatus();
}

// Without speculation, so that only capturing differs.
absl::Status MeasureCapture(Setup& setup, ServiceProcesses* with, ServiceProcesses* without, Findings* findings) {
  const std::vector<Way> ways = {{.name = "captured", .service = with, .speculation = SpeculationOff()},
                                 {.name = "not", .service = without, .speculation = SpeculationOff()}};
  const auto requests = MakeRequests(setup.prompts(), /*temperature=*/0, setup.options().max_tokens);
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.label = "capturing"}));
  AddRatio("with a drafter attached, against none, speculation off",
           Ratios(rounds.by_way[0], rounds.by_way[1], TokensPerSecond), 0.98, findings);
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureDrafters(Setup& setup, Findings* findings) {
  FT_ASSIGN_OR_RETURN(const std::string directory, setup.CostlyDirectory());
  std::vector<Proposer> proposers = setup.Proposers();
  FT_ASSIGN_OR_RETURN(ServiceProcesses* const without, setup.Costly());
  proposers.push_back(setup.Eagle3());
  FT_ASSIGN_OR_RETURN(
      const std::unique_ptr<ServiceProcesses> with,
      ServiceProcesses::Start(
          {.model_directory = directory, .verifier_flags = setup.VerifierFlags(), .proposers = proposers}));
  for (const Speedup& wanted : kSpeedups) FT_RETURN_IF_ERROR(MeasureSets(setup, with.get(), wanted, findings));
  FT_RETURN_IF_ERROR(MeasureCapture(setup, with.get(), without, findings));
  return MeasureSplitDrafter(setup, directory, findings);
}

}  // namespace foretoken::bench
