// SPDX-License-Identifier: Apache-2.0
#include <memory>
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
constexpr int kPromptTokens = 16;

// A setting of the traces, and the least throughput that it must leave.
struct Tracing {
  const char* name;
  std::vector<std::string> flags, variables;
  double at_least;  // of the throughput without tracing
};

std::vector<Tracing> Tracings(const std::string& collector) {
  const std::string endpoint = absl::StrCat("OTEL_EXPORTER_OTLP_ENDPOINT=", collector);
  return {{.name = "no exporter", .at_least = 1},
          {.name = "no exporter, again", .at_least = 0},  // the noise
          {.name = "an exporter, no request sampled",
           .variables = {endpoint, "OTEL_TRACES_SAMPLER=always_off"},
           .at_least = 0.995},
          {.name = "one request in 20",
           .variables = {endpoint, "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.05"},
           .at_least = 0.99},
          {.name = "every step of every request",
           .flags = {"--trace_steps"},
           .variables = {endpoint, "OTEL_BSP_MAX_QUEUE_SIZE=65536"},
           .at_least = 0.95}};
}

std::vector<foretoken::v1::GenerateRequest> RequestsOf(const Setup& setup, int num_rounds) {
  std::vector<std::string> prompts;
  for (int i = 0; i < num_rounds * kNumClients; ++i) prompts.push_back(setup.prompts()[i % setup.prompts().size()]);
  auto requests = MakeRequests(prompts, /*temperature=*/0.8, kMaxTokens);
  for (auto& request : requests) request.set_truncate_prompt_tokens(kPromptTokens);
  return requests;
}

absl::Status Measure(const std::string& label, const std::string& model, Setup& setup, Findings* findings) {
  testing::TraceCollector collector;
  std::vector<std::unique_ptr<ServiceProcesses>> services;
  std::vector<Way> ways;
  const std::vector<Tracing> tracings = Tracings(collector.url());
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
  const int num_rounds = setup.options().is_short ? 10 : 40;
  RoundsOptions options = {.num_clients = kNumClients, .round_size = kNumClients, .label = label + ", before"};
  FT_RETURN_IF_ERROR(RunRounds(ways, RequestsOf(setup, 2), options).status());
  options.label = label;
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, RequestsOf(setup, num_rounds), options));
  const Turn base = Sum(rounds.by_way[0]);
  findings->Add({.what = absl::StrCat(label, ", 16 clients, no exporter, a step"),
                 .value = 1e3 * base.wall_s / base.num_steps,
                 .unit = "ms"});
  const auto add = [&](size_t w, double (*rate)(const Turn&), const char* unit) {
    Finding finding = MedianFinding(absl::StrCat("  ", ways[w].name),
                                    client::MedianInterval(Ratios(rounds.by_way[w], rounds.by_way[0], rate)), unit);
    if (tracings[w].at_least > 0) finding.at_least = tracings[w].at_least;
    findings->Add(finding);
  };
  for (size_t w = 1; w < ways.size(); ++w) {
    add(w, TokensPerSecond, "x tokens/s");
    add(w, TokensPerProcessorSecond, "x tokens per second of processor time");
  }
  findings->Add({.what = "  spans collected", .value = static_cast<double>(collector.spans().size()), .unit = "spans"});
  findings->Add({.what = "  spans dropped, every step traced",
                 .value = services.back()->verifier().Metric("foretoken_trace_spans_dropped_total"),
                 .unit = "spans"});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureTracing(Setup& setup, Findings* findings) {
  FT_RETURN_IF_ERROR(Measure("demo", testing::SourcePath("deploy/demo/target"), setup, findings));
  FT_ASSIGN_OR_RETURN(const std::string costly, setup.CostlyDirectory());
  return Measure("costly target", costly, setup, findings);
}

}  // namespace foretoken::bench
