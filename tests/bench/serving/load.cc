// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"

namespace foretoken::bench {
namespace {

// So many clients in a closed loop.
struct Load {
  int num_clients = 1;
  int num_requests = 1;  // of each client in a round
  int num_rounds = 0;
  int max_tokens = 0;  // of a request, on average
};

// A second request each, so that the batch stays full while some are ahead of others. The more clients, the shorter
// their requests: a round stays within seconds. The median of six rounds is the least that has an interval of 95 %.
constexpr Load kLoads[] = {
    {.num_clients = 1, .num_rounds = 12, .max_tokens = 64},
    {.num_clients = 4, .num_requests = 2, .num_rounds = 8, .max_tokens = 32},
    {.num_clients = 16, .num_requests = 2, .num_rounds = 6, .max_tokens = 24},
    {.num_clients = 64, .num_requests = 2, .num_rounds = 6, .max_tokens = 24},
};
constexpr Load kShortLoads[] = {
    {.num_clients = 1, .num_rounds = 12, .max_tokens = 64},
    {.num_clients = 8, .num_requests = 2, .num_rounds = 6, .max_tokens = 32},
};
constexpr int kTreeSizes[] = {4, 8, 16, 32};
constexpr int kShortTreeSizes[] = {8};
// Decoding is what the load is about: of prompts only so many tokens are kept.
constexpr int kPromptTokens = 16;
constexpr int kLengths[] = {3, 4, 5, 2, 6};  // of outputs, in quarters of max_tokens

std::vector<foretoken::v1::GenerateRequest> RequestsOf(const Load& load, const Setup& setup) {
  std::vector<std::string> prompts;
  for (int i = 0; i < load.num_rounds * load.num_requests * load.num_clients; ++i) {
    prompts.push_back(setup.prompts()[i % setup.prompts().size()]);
  }
  auto requests = MakeRequests(prompts, /*temperature=*/0.8, load.max_tokens);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].set_truncate_prompt_tokens(kPromptTokens);
    // Of equal lengths all of a batch would end at once without speculation, and prompts be computed together.
    requests[i].mutable_stopping()->set_max_tokens(load.max_tokens * kLengths[i % std::size(kLengths)] / 4);
  }
  return requests;
}

std::vector<Way> WaysOf(const Setup& setup, ServiceProcesses* service) {
  const std::vector<std::string> methods = {"suffix", "draft"};
  std::vector<Way> ways = {{.name = "off", .service = service, .speculation = SpeculationOff()},
                           {.name = "auto", .service = service, .speculation = SpeculationBy(methods)}};
  for (const int size : setup.options().is_short ? std::span<const int>(kShortTreeSizes) : kTreeSizes) {
    Way& way = ways.emplace_back();
    way = {.name = absl::StrCat("trees of ", size), .service = service, .speculation = SpeculationBy(methods)};
    way.speculation.set_mode(foretoken::v1::SPECULATION_MODE_ALWAYS);
    way.speculation.set_max_tree_nodes(size);
  }
  return ways;
}

absl::Status Measure(const Load& load, Setup& setup, ServiceProcesses& service, Findings* findings) {
  const std::vector<Way> ways = WaysOf(setup, &service);
  const auto requests = RequestsOf(load, setup);
  const std::string label = absl::StrCat("load of ", load.num_clients);
  const int round_size = load.num_requests * load.num_clients;
  const RoundsOptions options = {.num_clients = load.num_clients, .round_size = round_size, .label = label};
  // What rows cost at this load, and who is worth asking, is learned while serving: a service is judged as it goes on.
  RoundsOptions before = options;
  before.label += ", before";
  FT_RETURN_IF_ERROR(RunRounds({ways[1]}, requests, before).status());
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, options));

  const std::vector<Turn>& automatic = rounds.by_way[1];
  const Turn off = Sum(rounds.by_way[0]), all = Sum(automatic);
  findings->Add({.what = absl::StrCat(load.num_clients, load.num_clients == 1 ? " client" : " clients", ", off"),
                 .value = TokensPerSecond(off),
                 .unit = "tokens/s"});
  findings->Add({.what = "  auto: tokens per step of each", .value = TokensPerStep(all), .unit = "tokens"});
  findings->Add({.what = "  auto: nodes a step of each", .value = NodesPerStep(all), .unit = "nodes"});
  const MedianWithInterval against_off = MedianInterval(Ratios(automatic, rounds.by_way[0], TokensPerSecond));
  findings->Add(MedianFinding("  auto against off", against_off, "x tokens/s"));
  findings->Add({.what = "    its lower end", .value = against_off.low, .unit = "x", .at_least = 0.97});
  for (size_t w = 2; w < ways.size(); ++w) {
    Finding finding = MedianFinding(absl::StrCat("  auto against ", ways[w].name),
                                    MedianInterval(Ratios(automatic, rounds.by_way[w], TokensPerSecond)), "x tokens/s");
    finding.at_least = 0.9;
    findings->Add(finding);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureLoad(Setup& setup, Findings* findings) {
  FT_ASSIGN_OR_RETURN(ServiceProcesses* const service, setup.Costly());
  for (const Load& load : setup.options().is_short ? std::span<const Load>(kShortLoads) : kLoads) {
    FT_RETURN_IF_ERROR(Measure(load, setup, *service, findings));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::bench
