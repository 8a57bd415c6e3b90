// SPDX-License-Identifier: Apache-2.0
// The same requests sent in several ways that take turns, so that a machine that changes its pace changes it for all;
// and what each way took in each round.
//
//   std::vector<Way> ways = {{.name = "off", .service = service, .speculation = Off()}, {.name = "on", ...}};
//   FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.round_size = 1}));
//   const auto speedup = client::MedianInterval(Ratios(rounds.by_way[1], rounds.by_way[0], TokensPerSecond));
//
// Each round sends its part of the requests once in every way; the order turns from round to round (A B, B A; of three
// and more ways each is first in turn). A way's requests of a round are a tenant of their own: no way finds a prompt or
// an output that another one, or an earlier round, left in a cache or a shared tree.
//
// Errors: the first failed request's; INTERNAL when a way's token ids differ from those of the first way, naming the
// request. Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/median_interval.h"
#include "foretoken/v1/generation.pb.h"
#include "tests/bench/serving/service_processes.h"

namespace foretoken::bench {

struct Way {
  std::string name;
  ServiceProcesses* service = nullptr;
  foretoken::v1::SpeculationOptions speculation;
};

// One way in one round.
struct Turn {
  double wall_s = 0;
  double num_tokens = 0;        // generated
  double num_sample_steps = 0;  // each sample's own; a step of four samples counts four times
  double num_accepted = 0;      // tokens that proposers won
  double num_later_tokens = 0;  // those after each stream's first message
  double later_s = 0;           // over which these came, summed over the streams
  double num_streams = 0;
  // Of the verifier, from before the turn to its end.
  double num_steps = 0;
  double num_rows = 0;
  double num_prompt_rows = 0;
  double compute_s = 0;  // forward passes and draws
  double host_s = 0;
  double wait_s = 0;  // for proposals
};

double TokensPerSecond(const Turn& turn);
double TokensPerStep(const Turn& turn);    // of a sample
double ComputeSPerStep(const Turn& turn);  // of the batch
double AcceptedPerStep(const Turn& turn);  // of a sample
double NodesPerStep(const Turn& turn);     // of a sample: tree nodes verified
// What the reader of one stream sees once it has begun: the prompt is left out.
double StreamTokensPerSecond(const Turn& turn);

struct RoundsOptions {
  int num_clients = 1;
  int round_size = 1;  // requests in a round
  std::string label;   // tenants of calls with other labels share nothing
  absl::Duration gap;  // before each turn, without requests
};

struct Rounds {
  std::vector<std::vector<Turn>> by_way;  // [way][round]
};

absl::StatusOr<Rounds> RunRounds(const std::vector<Way>& ways,
                                 const std::vector<foretoken::v1::GenerateRequest>& requests,
                                 const RoundsOptions& options);

// The ratio a / b of each round.
std::vector<double> Ratios(const std::vector<Turn>& a, const std::vector<Turn>& b, double (*value)(const Turn&));
// All turns as one.
Turn Sum(const std::vector<Turn>& turns);

}  // namespace foretoken::bench
