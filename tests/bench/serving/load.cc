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

// A closed loop with this many clients.
struct Load {
  int num_clients = 1;
  int num_requests = 1;  // of each client in a round
  int num_rounds = 0;
  int max_tokens = 0;  // of a request, on average
};

// Each client sends two requests, so the batch stays full while some clients are ahead. With more clients the requests
// are shorter, so a round stays within seconds. Six rounds are the least with a 95 % interval of the median. Twenty
// rounds make the interval narrow enough to show a few per cent.
constexpr Load kLoads[] = {
    {.num_clients = 1, .num_rounds = 20, .max_tokens = 64},
    {.num_clients = 4, .num_requests = 2, .num_rounds = 20, .max_tokens = 32},
    {.num_clients = 16, .num_requests = 2, .num_rounds = 20, .max_tokens = 24},
    {.num_clients = 64, .num_rounds = 20, .max_tokens = 24},
};
constexpr Load kShortLoads[] = {
    {.num_clients = 1, .num_rounds = 12, .max_tokens = 64},
    {.num_clients = 8, .num_requests = 2, .num_rounds = 6, .max_tokens = 32},
};
constexpr int kTreeSizes[] = {4, 8, 16, 32};
// Large trees at a high load take a long time.
constexpr int kFixedRounds = 3;
constexpr int kShortTreeSizes[] = {8};
constexpr int kQuarters[] = {3, 4, 5, 2, 6};  // of outputs, in quarters of max_tokens

std::vector<foretoken::v1::GenerateRequest> RequestsOf(const Load& load, const Setup& setup) {
  std::vector<std::string> prompts;
  for (int i = 0; i < load.num_rounds * load.num_requests * load.num_clients; ++i) {
    prompts.push_back(setup.prompts()[i % setup.prompts().size()]);
  }
  auto requests = MakeRequests(prompts, /*temperature=*/0.8, load.max_tokens);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].set_truncate_prompt_tokens(kPromptTokens);
    // With equal lengths all sequences of a batch would end together without speculation, and their prompts would be
    // computed together.
    requests[i].mutable_stopping()->set_max_tokens(load.max_tokens * kQuarters[i % std::size(kQuarters)] / 4);
  }
  return requests;
}

const std::vector<std::string> kMethods = {"suffix", "draft"};

std::vector<Way> FixedWays(const Setup& setup, ServiceProcesses* service) {
  std::vector<Way> ways;
  for (const int size : setup.options().is_short ? std::span<const int>(kShortTreeSizes) : kTreeSizes) {
    Way& way = ways.emplace_back();
    way = {.name = absl::StrCat("trees of ", size), .service = service, .speculation = SpeculationBy(kMethods)};
    way.speculation.set_mode(foretoken::v1::SPECULATION_MODE_ALWAYS);
    way.speculation.set_max_tree_nodes(size);
  }
  return ways;
}

absl::Status Measure(const Load& load, Setup& setup, ServiceProcesses& service, Findings* findings) {
  const Way off = {.name = "off", .service = &service, .speculation = SpeculationOff()};
  const Way automatic = {.name = "auto", .service = &service, .speculation = SpeculationBy(kMethods)};
  // The difference between two measurements of one setting on this machine. Smaller differences mean nothing.
  const Way again = {.name = "off again", .service = &service, .speculation = SpeculationOff()};
  const auto requests = RequestsOf(load, setup);
  const auto first = [&](int num_rounds) {
    return std::vector(requests.begin(), requests.begin() + num_rounds * load.num_requests * load.num_clients);
  };
  RoundsOptions options = {.num_clients = load.num_clients, .round_size = load.num_requests * load.num_clients};
  // The verifier learns the costs of rows and the gain of each proposer while it serves, so the first rounds do not
  // count.
  options.label = absl::StrCat("load of ", load.num_clients, ", before");
  FT_RETURN_IF_ERROR(RunRounds({automatic}, first(load.num_rounds / 2), options).status());

  options.label = absl::StrCat("load of ", load.num_clients);
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds({off, automatic, again}, requests, options));
  const Turn all = Sum(rounds.by_way[1]);
  findings->Add({.what = absl::StrCat(load.num_clients, load.num_clients == 1 ? " client" : " clients", ", off"),
                 .value = TokensPerSecond(Sum(rounds.by_way[0])),
                 .unit = "tokens/s"});
  findings->Add({.what = "  auto: tokens per step of each", .value = TokensPerStep(all), .unit = "tokens"});
  findings->Add({.what = "  auto: nodes a step of each", .value = NodesPerStep(all), .unit = "nodes"});
  const auto against_off = client::MedianInterval(Ratios(rounds.by_way[1], rounds.by_way[0], TokensPerSecond));
  const auto against_itself = client::MedianInterval(Ratios(rounds.by_way[2], rounds.by_way[0], TokensPerSecond));
  findings->Add(MedianFinding("  off against itself", against_itself, "x tokens/s"));
  findings->Add(MedianFinding("  auto against off", against_off, "x tokens/s"));
  findings->Add({.what = "    its lower end", .value = against_off.low, .unit = "x", .at_least = 0.97});

  options.label = absl::StrCat("load of ", load.num_clients, ", fixed");
  std::vector<Way> ways = FixedWays(setup, &service);
  ways.insert(ways.begin(), automatic);
  FT_ASSIGN_OR_RETURN(const Rounds fixed, RunRounds(ways, first(kFixedRounds), options));
  for (size_t w = 1; w < ways.size(); ++w) {
    const auto against = client::MedianInterval(Ratios(fixed.by_way[0], fixed.by_way[w], TokensPerSecond));
    Finding finding = MedianFinding(absl::StrCat("  auto against ", ways[w].name), against, "x tokens/s");
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
