// SPDX-License-Identifier: Apache-2.0
// A discrete-event simulation of verifiers and groups of proposers under a load, from the profile of one verifier.
//
//   const SimulationResult result = Simulate(profile, {.num_verifiers = 100, .num_replicas = {20}}, {.rate = 400});
//
// The model. A verifier runs up to max_running requests; further ones wait, and beyond max_queued they are refused.
// Requests go to the verifiers in turn. A step takes the profile's time for its number of sequences, and longer by the
// rows of the prompts in it, whose number prompt_share.h decides. After a step each sequence asks one replica of every
// proposer for a tree, the replicas in turn. A replica answers one question after another, each in the time that the
// profile has for this proposer. If it does not begin with a question within the time of a step, it leaves the question
// out. If all proposers begin in time, the sequence accepts guesses as in the profile, which does not say what each
// proposer wins alone. If one does not, the sequence gets one token.
//
// Left out: the time on the network, the time to start programs, faults, and prefixes that requests share. Further:
// - The K/V cache has room for max_running sequences, so no sample waits for blocks or loses them.
// - A step takes no longer for long contexts than for those of the profile.
// - A draft model computes trees of several sessions in one pass, so it may need fewer replicas than this finds.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "client/generation_stats.h"
#include "client/simulate/profile.h"
#include "client/simulate/prompt_share.h"

namespace foretoken::client {

struct SimulatedCluster {
  int32_t num_verifiers = 1;
  bool speculates = true;
  std::vector<int32_t> num_replicas = {};  // of each proposer of the profile; empty: one for each verifier
  int32_t max_running = 64;
  int32_t max_queued = 256;
  PromptBounds prompts = {};
};

struct SimulatedLoad {
  double rate = 0;          // requests per second, at random times; 0: a closed loop
  int32_t num_clients = 0;  // of a closed loop: each sends its next request when its last one has ended
  // Simulated; the first third is not counted. Requests end at the rate at which they arrive only if they take less
  // than that third.
  double seconds = 60;
  uint64_t seed = 1;
};

// Of one proposer.
struct SimulatedProposer {
  double busy_share = 0;  // of its replicas' time
  double late_share = 0;  // of the questions to it
};

struct SimulationResult {
  int64_t num_arrived = 0;  // requests
  double tokens_per_s = 0;
  double requests_per_s = 0;  // completed, whenever they arrived
  double refused_share = 0;   // of the requests that arrived
  // Of the requests that arrived and were not refused. A request that still waits at the end counts with the time that
  // it has waited so far.
  std::optional<Distribution> time_to_first_token_ms = std::nullopt;
  std::optional<Distribution> inter_token_ms = std::nullopt;  // mean of each completed request
  double tokens_per_step = 0;                                 // of a sequence
  double verifier_busy_share = 0;
  std::vector<SimulatedProposer> proposers = {};  // as in the profile; empty without speculation
};

// INVALID_ARGUMENT names the field.
absl::Status CheckSimulation(const Profile& profile, const SimulatedCluster& cluster, const SimulatedLoad& load);

// The arguments must pass CheckSimulation.
SimulationResult Simulate(const Profile& profile, const SimulatedCluster& cluster, const SimulatedLoad& load);

}  // namespace foretoken::client
