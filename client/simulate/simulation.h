// SPDX-License-Identifier: Apache-2.0
// A discrete-event simulation of verifiers and a group of proposers under a load, from the profile of one verifier.
//
//   const SimulationResult result = Simulate(profile, {.num_verifiers = 100, .num_proposers = 20}, {.rate = 400});
//
// The model. A verifier runs up to max_running requests; further ones wait, and beyond max_queued they are refused.
// Requests go to the verifiers in turn. A step takes the profile's time for its number of sequences, and longer by the
// rows of the prompts in it, whose number prompt_share.h decides. After a step each sequence asks a
// replica for a tree, the replicas in turn. A replica answers one question after another, each in the profile's time.
// If it begins with a question within the time of a step, the sequence accepts guesses as in the profile. If not, the
// replica leaves the question out, and the sequence gets one token.
//
// Left out: the time on the network, the time to start programs, faults, and prefixes that requests share.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "client/generation_stats.h"
#include "client/simulate/profile.h"
#include "client/simulate/prompt_share.h"

namespace foretoken::client {

struct SimulatedCluster {
  int32_t num_verifiers = 1;
  // Replicas. Unset: one for each verifier, as in the profile. 0: no speculation.
  std::optional<int32_t> num_proposers = std::nullopt;
  int32_t max_running = 64;
  int32_t max_queued = 256;
  PromptBounds prompts = {};
};

struct SimulatedLoad {
  double rate = 0;          // requests per second, at random times; 0: a closed loop
  int32_t num_clients = 0;  // of a closed loop: each sends its next request when its last one has ended
  double seconds = 60;      // simulated; the first third is not counted
  uint64_t seed = 1;
};

struct SimulationResult {
  double tokens_per_s = 0;
  double requests_per_s = 0;  // completed
  double refused_share = 0;   // of the requests that arrived
  std::optional<Distribution> time_to_first_token_ms = std::nullopt;
  std::optional<Distribution> inter_token_ms = std::nullopt;  // mean of each request
  double tokens_per_step = 0;                                 // of a sequence
  double verifier_busy_share = 0;
  double proposer_busy_share = 0;
  double late_share = 0;  // of the questions to proposers
};

// INVALID_ARGUMENT names the field.
absl::Status CheckSimulation(const SimulatedCluster& cluster, const SimulatedLoad& load);

// The arguments must pass CheckSimulation.
SimulationResult Simulate(const Profile& profile, const SimulatedCluster& cluster, const SimulatedLoad& load);

}  // namespace foretoken::client
