// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"

namespace foretoken::bench {
namespace {

// The tokens per second that theory allows for `on`, relative to `off`: the ratio of tokens per step over the ratio of
// step costs.
std::vector<double> PartsReached(const std::vector<Turn>& on, const std::vector<Turn>& off) {
  const std::vector<double> speedups = Ratios(on, off, TokensPerSecond);
  const std::vector<double> tokens = Ratios(on, off, TokensPerStep);
  const std::vector<double> costs = Ratios(on, off, ComputeSPerStep);
  std::vector<double> reached;
  for (size_t i = 0; i < speedups.size(); ++i) reached.push_back(speedups[i] / (tokens[i] / costs[i]));
  return reached;
}

void AddStepFindings(const Turn& on, const Turn& off, Findings* findings) {
  findings->Add({.what = "  tokens per step", .value = TokensPerStep(on), .unit = "tokens"});
  findings->Add({.what = "  tree nodes per step", .value = NodesPerStep(on), .unit = "nodes"});
  findings->Add({.what = "  a step without speculation", .value = 1e3 * ComputeSPerStep(off), .unit = "ms"});
  findings->Add(
      {.what = "  cost of a step against that", .value = ComputeSPerStep(on) / ComputeSPerStep(off), .unit = "x"});
  const auto beside_ms = [](const Turn& turn) { return 1e3 * (turn.wall_s - turn.compute_s) / turn.num_steps; };
  findings->Add({.what = "  beside the model, without speculation", .value = beside_ms(off), .unit = "ms a step"});
  findings->Add({.what = "  beside the model, with it", .value = beside_ms(on), .unit = "ms a step"});
  findings->Add(
      {.what = "    of that waiting for proposals", .value = 1e3 * on.wait_s / on.num_steps, .unit = "ms a step"});
  findings->Add(
      {.what = "    of that the engine's own work", .value = 1e3 * on.host_s / on.num_steps, .unit = "ms a step"});
}

struct Hits {
  double answers = 0;
  double hits = 0;
};

Hits DraftHits(const ServiceProcesses& service) {
  const testing::MetricsPage page = service.proposer("draft").Metrics();
  return Hits{.answers = page.at("foretoken_draft_answers_total"), .hits = page.at("foretoken_draft_hits_total")};
}

struct Regime {
  const char* name;
  double temperature;
  double speedup_with_amx;
};
constexpr Regime kRegimes[] = {{"greedy", 0, 2.8}, {"temperature 0.8", 0.8, 2.1}};

absl::Status Measure(const Regime& regime, Setup& setup, ServiceProcesses& service, Findings* findings) {
  const std::vector<Way> ways = {
      {.name = "off", .service = &service, .speculation = SpeculationOff()},
      {.name = "suffix+draft", .service = &service, .speculation = SpeculationBy({"suffix", "draft"})}};
  const auto requests = MakeRequests(setup.prompts(), regime.temperature, setup.options().max_tokens);
  const std::string label = absl::StrCat("theory, ", regime.name);
  // The verifier learns costs and chances while it serves, so the first few requests do not count.
  const std::vector<foretoken::v1::GenerateRequest> first(requests.begin(), requests.begin() + 2);
  FT_RETURN_IF_ERROR(RunRounds(ways, first, {.label = label + ", before"}).status());
  const Hits before = DraftHits(service);
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.label = label}));
  const Hits after = DraftHits(service);
  const std::vector<Turn>&off = rounds.by_way[0], &on = rounds.by_way[1];

  Finding speedup = MedianFinding(absl::StrCat("suffix+draft against off, ", regime.name),
                                  client::MedianInterval(Ratios(on, off, TokensPerSecond)), "x tokens/s");
  if (setup.has_amx() && !setup.options().is_short) speedup.at_least = regime.speedup_with_amx;
  findings->Add(speedup);
  Finding reached =
      MedianFinding("  of what tokens and cost per step allow", client::MedianInterval(PartsReached(on, off)), "");
  reached.at_least = 0.9;
  findings->Add(reached);
  AddStepFindings(Sum(on), Sum(off), findings);
  findings->Add({.what = "  draft: advances answered from the grown tree",
                 .value = 100 * (after.hits - before.hits) / std::max(1.0, after.answers - before.answers),
                 .unit = "%",
                 .at_least = 80});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureTheory(Setup& setup, Findings* findings) {
  FT_ASSIGN_OR_RETURN(ServiceProcesses* const service, setup.Costly());
  for (const Regime& regime : kRegimes) FT_RETURN_IF_ERROR(Measure(regime, setup, *service, findings));
  return absl::OkStatus();
}

}  // namespace foretoken::bench
