// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"
#include "tests/testing/fakes/trace_collector.h"
#include "tests/testing/paths.h"

namespace foretoken::bench {
namespace {

constexpr int kNumClients = 16;
constexpr int kMaxTokens = 32;

// A setting of the traces, and what it may cost.
struct Tracing {
  const char* name;
  std::vector<std::string> flags, variables;
  std::optional<double> at_most_percent;
};

std::vector<Tracing> Tracings(const std::string& collector) {
  const std::string endpoint = absl::StrCat("OTEL_EXPORTER_OTLP_ENDPOINT=", collector);
  return {{.name = "no exporter"},
          {.name = "no exporter, again"},
          {.name = "an exporter, no request sampled",
           .variables = {endpoint, "OTEL_TRACES_SAMPLER=always_off"},
           .at_most_percent = 0.5},
          {.name = "one request in 20",
           .variables = {endpoint, "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.05"},
           .at_most_percent = 1},
          {.name = "every step, and no collector there",
           .flags = {"--trace_steps"},
           .variables = {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"},
           .at_most_percent = 5},
          {.name = "every step of every request",
           .flags = {"--trace_steps"},
           .variables = {endpoint, "OTEL_BSP_MAX_QUEUE_SIZE=65536"},
           .at_most_percent = 5}};
}

std::vector<foretoken::v1::GenerateRequest> RequestsOf(const Setup& setup, int num_rounds) {
  std::vector<std::string> prompts;
  for (int i = 0; i < num_rounds * kNumClients; ++i) prompts.push_back(setup.prompts()[i % setup.prompts().size()]);
  auto requests = MakeRequests(prompts, /*temperature=*/0.8, kMaxTokens);
  for (auto& request : requests) request.set_truncate_prompt_tokens(kPromptTokens);
  return requests;
}

// Turns of every setting, in one start of its verifiers. Adds to *spans_dropped those of the last setting.
absl::StatusOr<Rounds> RunOneStart(const std::vector<Tracing>& tracings, const std::string& model, int num_rounds,
                                   const std::string& label, Setup& setup, double* spans_dropped) {
  std::vector<std::unique_ptr<ServiceProcesses>> services;
  std::vector<Way> ways;
  for (const Tracing& tracing : tracings) {
    std::vector<std::string> flags = setup.VerifierFlags();
    flags.insert(flags.end(), tracing.flags.begin(), tracing.flags.end());
    FT_ASSIGN_OR_RETURN(services.emplace_back(), ServiceProcesses::Start({.model_directory = model,
                                                                          .verifier_flags = flags,
                                                                          .verifier_environment = tracing.variables,
                                                                          .proposers = {{.method = "ngram"}},
                                                                          .placement = Placement::kEmbedded}));
    // ALWAYS, so that every verifier has the same trees, whatever it learns.
    ways.push_back({.name = tracing.name, .service = services.back().get(), .speculation = SpeculationBy({"ngram"})});
    ways.back().speculation.set_mode(foretoken::v1::SPECULATION_MODE_ALWAYS);
  }
  RoundsOptions options = {.num_clients = kNumClients, .round_size = kNumClients, .label = label + ", before"};
  FT_RETURN_IF_ERROR(RunRounds(ways, RequestsOf(setup, 2), options).status());
  options.label = label;
  FT_ASSIGN_OR_RETURN(Rounds rounds, RunRounds(ways, RequestsOf(setup, num_rounds), options));
  *spans_dropped += services.back()->verifier().Metric("foretoken_trace_spans_dropped_total");
  return rounds;
}

// What a setting costs in each round, against both verifiers without an exporter; the second of them against the first.
std::vector<double> CostPercents(const Rounds& rounds, size_t way, double (*rate)(const Turn&)) {
  std::vector<double> percents;
  for (size_t i = 0; i < rounds.by_way[way].size(); ++i) {
    const Turn &first = rounds.by_way[0][i], &again = rounds.by_way[1][i];
    const double untraced = rate(way == 1 ? first : Sum({first, again}));
    percents.push_back(100 * (1 - rate(rounds.by_way[way][i]) / untraced));
  }
  return percents;
}

// Two processes of the same program differ by up to a percent for as long as they live, so the verifiers are started
// anew several times.
absl::Status Measure(const std::string& label, const std::string& model, int num_starts, int num_rounds, Setup& setup,
                     Findings* findings) {
  testing::TraceCollector collector;
  const std::vector<Tracing> tracings = Tracings(collector.url());
  Rounds all{.by_way = std::vector<std::vector<Turn>>(tracings.size())};
  double spans_dropped = 0;
  for (int start = 0; start < num_starts; ++start) {
    FT_ASSIGN_OR_RETURN(const Rounds rounds, RunOneStart(tracings, model, num_rounds, absl::StrCat(label, " ", start),
                                                         setup, &spans_dropped));
    for (size_t w = 0; w < tracings.size(); ++w) {
      all.by_way[w].insert(all.by_way[w].end(), rounds.by_way[w].begin(), rounds.by_way[w].end());
    }
  }
  const Turn base = Sum(all.by_way[0]);
  findings->Add({.what = absl::StrCat(label, ", 16 clients, no exporter, a step"),
                 .value = 1e3 * base.wall_s / base.num_steps,
                 .unit = "ms"});
  const auto add = [&](size_t w, double (*rate)(const Turn&), const char* unit) {
    Finding finding =
        MedianFinding(absl::StrCat("  ", tracings[w].name), client::MedianInterval(CostPercents(all, w, rate)), unit);
    finding.at_most = tracings[w].at_most_percent;
    findings->Add(finding);
  };
  for (size_t w = 1; w < tracings.size(); ++w) {
    add(w, TokensPerSecond, "% fewer tokens/s");
    add(w, TokensPerProcessorSecond, "% fewer tokens per second of processor time");
  }
  findings->Add({.what = "  spans collected", .value = static_cast<double>(collector.spans().size()), .unit = "spans"});
  findings->Add({.what = "  spans dropped, every step traced", .value = spans_dropped, .unit = "spans", .at_most = 0});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureTracing(Setup& setup, Findings* findings) {
  const bool is_short = setup.options().is_short;
  FT_RETURN_IF_ERROR(Measure("demo", testing::SourcePath("deploy/demo/target"), /*num_starts=*/is_short ? 1 : 16,
                             /*num_rounds=*/is_short ? 10 : 40, setup, findings));
  FT_ASSIGN_OR_RETURN(const std::string costly, setup.CostlyDirectory());
  return Measure("costly target", costly, /*num_starts=*/is_short ? 1 : 3, /*num_rounds=*/10, setup, findings);
}

}  // namespace foretoken::bench
