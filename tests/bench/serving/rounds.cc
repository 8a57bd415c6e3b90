// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/rounds.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/comparison.h"
#include "client/load.h"
#include "common/base/status_macros.h"

namespace foretoken::bench {
namespace {

using client::TimedGeneration;
using foretoken::v1::GenerateRequest;

double PhaseSeconds(const testing::MetricsPage& page, absl::string_view phase) {
  return page.at(absl::StrCat("foretoken_step_seconds_total{part=\"", phase, "\"}"));
}

// The difference of the verifier's counters since the start of a turn.
Turn CountersOf(const ServiceProcesses& service) {
  const testing::MetricsPage page = service.verifier().Metrics();
  return Turn{.num_steps = page.at("foretoken_steps_total"),
              .num_rows = page.at("foretoken_rows_total"),
              .num_prompt_rows = page.at("foretoken_prompt_tokens_total"),
              .compute_s = PhaseSeconds(page, "forward") + PhaseSeconds(page, "draw"),
              .host_s = PhaseSeconds(page, "host"),
              .wait_s = PhaseSeconds(page, "wait"),
              .processor_s = absl::ToDoubleSeconds(service.verifier().process().ProcessorTime())};
}

// Values from the verifier's own counters.
constexpr double Turn::*kCounted[] = {&Turn::num_steps, &Turn::num_rows, &Turn::num_prompt_rows, &Turn::compute_s,
                                      &Turn::host_s,    &Turn::wait_s,   &Turn::processor_s};
// Values from the clients' side.
constexpr double Turn::*kSeen[] = {&Turn::wall_s,  &Turn::num_tokens,  &Turn::num_sample_steps, &Turn::num_accepted,
                                   &Turn::later_s, &Turn::num_streams, &Turn::num_later_tokens};

Turn Difference(Turn after, const Turn& before) {
  for (double Turn::*const value : kCounted) after.*value -= before.*value;
  return after;
}

void AddUsage(const std::vector<TimedGeneration>& generations, Turn* turn) {
  for (const TimedGeneration& timed : generations) {
    for (const client::Sample& sample : timed.generation.samples) {
      turn->num_tokens += static_cast<double>(sample.token_ids.size());
      turn->num_sample_steps += sample.completion->usage().steps();
      turn->num_accepted += static_cast<double>(std::ranges::count(sample.speculated, true));
      turn->num_later_tokens += static_cast<double>(sample.token_ids.size()) - timed.arrivals.front().num_tokens;
    }
    turn->later_s += absl::ToDoubleSeconds(timed.arrivals.back().since_start - timed.arrivals.front().since_start);
    turn->num_streams += 1;
  }
}

struct TurnResult {
  Turn turn;
  std::vector<TimedGeneration> generations;
};

absl::StatusOr<TurnResult> RunTurn(const Way& way, std::vector<GenerateRequest> requests, const std::string& tenant,
                                   int num_clients) {
  for (GenerateRequest& request : requests) {
    *request.mutable_speculation() = way.speculation;
    request.set_tenant(tenant);
  }
  const Turn before = CountersOf(*way.service);
  client::LoadResult load =
      client::RunLoad(way.service->client(), requests, {.num_clients = num_clients}, [](const TimedGeneration&) {});
  const Turn after = CountersOf(*way.service);
  for (const TimedGeneration& timed : load.generations) FT_RETURN_IF_ERROR(timed.status);
  TurnResult result{.turn = Difference(after, before), .generations = std::move(load.generations)};
  result.turn.wall_s = absl::ToDoubleSeconds(load.wall);
  AddUsage(result.generations, &result.turn);
  return result;
}

absl::Status CheckEqual(const std::vector<Way>& ways, const std::vector<TurnResult>& results) {
  for (size_t w = 1; w < ways.size(); ++w) {
    const std::vector<std::string> differences =
        client::Differences({.name = ways[0].name, .generations = results[0].generations},
                            {.name = ways[w].name, .generations = results[w].generations});
    if (!differences.empty()) return absl::InternalError(absl::StrCat("tokens differ: ", differences.front()));
  }
  return absl::OkStatus();
}

// Two settings run as A B, B A, A B ... With more settings, each is first in turn, and every other round goes
// backwards, so that none always follows the same one.
size_t WayAt(size_t round, size_t turn, size_t num_ways) {
  const size_t step = round % 2 == 0 ? turn : num_ways - turn;
  return (round + step) % num_ways;
}

}  // namespace

double TokensPerSecond(const Turn& turn) { return turn.num_tokens / turn.wall_s; }
double TokensPerProcessorSecond(const Turn& turn) { return turn.num_tokens / turn.processor_s; }
double TokensPerStep(const Turn& turn) { return turn.num_tokens / turn.num_sample_steps; }
double ComputeSPerStep(const Turn& turn) { return turn.compute_s / turn.num_steps; }
double AcceptedPerStep(const Turn& turn) { return turn.num_accepted / turn.num_sample_steps; }
double StreamTokensPerSecond(const Turn& turn) { return turn.num_later_tokens / turn.later_s; }

// The first token of a stream is drawn at its prompt's last row. Every later step of the stream has a root.
double NodesPerStep(const Turn& turn) {
  const double num_roots = turn.num_sample_steps - turn.num_streams;
  return (turn.num_rows - turn.num_prompt_rows - num_roots) / turn.num_sample_steps;
}

absl::StatusOr<Rounds> RunRounds(const std::vector<Way>& ways, const std::vector<GenerateRequest>& requests,
                                 const RoundsOptions& options) {
  Rounds rounds{.by_way = std::vector<std::vector<Turn>>(ways.size())};
  for (size_t begin = 0, round = 0; begin < requests.size(); begin += options.round_size, ++round) {
    const size_t end = std::min(requests.size(), begin + options.round_size);
    std::vector<TurnResult> results(ways.size());
    for (size_t turn = 0; turn < ways.size(); ++turn) {
      const size_t w = WayAt(round, turn, ways.size());
      const std::string tenant = absl::StrCat(options.label, "/", ways[w].name, "/", round);
      absl::SleepFor(options.gap);
      FT_ASSIGN_OR_RETURN(results[w], RunTurn(ways[w], {requests.begin() + begin, requests.begin() + end}, tenant,
                                              options.num_clients));
    }
    FT_RETURN_IF_ERROR(CheckEqual(ways, results));
    for (size_t w = 0; w < ways.size(); ++w) rounds.by_way[w].push_back(results[w].turn);
  }
  return rounds;
}

std::vector<double> Ratios(const std::vector<Turn>& a, const std::vector<Turn>& b, double (*value)(const Turn&)) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(value(a[i]) / value(b[i]));
  return ratios;
}

Turn Sum(const std::vector<Turn>& turns) {
  Turn sum;
  for (const Turn& turn : turns) {
    for (double Turn::*const value : kCounted) sum.*value += turn.*value;
    for (double Turn::*const value : kSeen) sum.*value += turn.*value;
  }
  return sum;
}

}  // namespace foretoken::bench
