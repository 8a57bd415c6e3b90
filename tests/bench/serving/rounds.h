// SPDX-License-Identifier: Apache-2.0
// Sends the same requests with several settings, or "ways". The ways take turns, so a machine that changes its pace
// changes it for all. Records the results of each way in each round.
//
//   std::vector<Way> ways = {{.name = "off", .service = service, .speculation = Off()}, {.name = "on", ...}};
//   FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(ways, requests, {.round_size = 1}));
//   const auto speedup = client::MedianInterval(Ratios(rounds.by_way[1], rounds.by_way[0], TokensPerSecond));
//
// Each round sends its part of the requests once in every way. The order changes from round to round (A B, B A; with
// three and more ways each is first in turn, and every other round goes backwards). The requests of a way in a round
// have a tenant of their own, so no way finds prompts or outputs of another way or an earlier round in a cache or a
// shared tree.
//
// Errors: the error of the first failed request; INTERNAL with the request if a way's token ids differ from those of
// the first way. Threads: one.
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

// The results of one way in one round.
struct Turn {
  double wall_s = 0;
  double num_tokens = 0;        // generated
  double num_sample_steps = 0;  // the sum of each sample's steps; a step of four samples counts four times
  double num_accepted = 0;      // guessed tokens that the verifier accepted
  double num_later_tokens = 0;  // the tokens after each stream's first message
  double later_s = 0;           // the time of these tokens, summed over the streams
  double num_streams = 0;
  // The verifier's counters, from the beginning of the turn to its end.
  double num_steps = 0;
  double num_rows = 0;
  double num_prompt_rows = 0;
  double compute_s = 0;  // forward passes and draws
  double host_s = 0;
  double wait_s = 0;       // for proposals
  double processor_s = 0;  // of the verifier's process, all threads
};

double TokensPerSecond(const Turn& turn);
// Other programs of the machine hardly change it, so it shows small costs that TokensPerSecond hides.
double TokensPerProcessorSecond(const Turn& turn);
double TokensPerStep(const Turn& turn);    // of a sample
double ComputeSPerStep(const Turn& turn);  // of the batch
double AcceptedPerStep(const Turn& turn);  // of a sample
double NodesPerStep(const Turn& turn);     // of a sample: tree nodes verified
// The rate for the reader of one stream after its first token, without the prompt.
double StreamTokensPerSecond(const Turn& turn);

struct RoundsOptions {
  int num_clients = 1;
  int round_size = 1;  // requests in a round
  std::string label;   // calls with different labels have different tenants
  absl::Duration gap;  // the time without requests before each turn
};

struct Rounds {
  std::vector<std::vector<Turn>> by_way;  // [way][round]
};

absl::StatusOr<Rounds> RunRounds(const std::vector<Way>& ways,
                                 const std::vector<foretoken::v1::GenerateRequest>& requests,
                                 const RoundsOptions& options);

// The ratio a / b in each round.
std::vector<double> Ratios(const std::vector<Turn>& a, const std::vector<Turn>& b, double (*value)(const Turn&));
// The sums over all turns.
Turn Sum(const std::vector<Turn>& turns);

}  // namespace foretoken::bench
