// SPDX-License-Identifier: Apache-2.0
// How many verifiers and proposers a load needs, and the load at which they break, by simulation.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/simulate/profile.h"
#include "client/simulate/simulation.h"

namespace foretoken::client {

struct SizingQuestion {
  std::optional<int32_t> num_verifiers = std::nullopt;  // unset: the fewest that serve the load; 1 in a closed loop
  // Replicas of each proposer of the profile. Unset, or missing at the end: the fewest that answer in time.
  std::vector<std::optional<int32_t>> num_replicas = {};
  SimulatedCluster cluster = {};     // the other settings
  double max_first_token_ms = 1000;  // a higher p99 counts as not served
};

struct Sizing {
  SimulatedCluster cluster;
  SimulationResult result;
  // Requests per second that this cluster does not serve. Unset: it does not serve the load already, or it serves 1024
  // times the load, or the loop is closed.
  std::optional<double> breaking_rate = std::nullopt;
};

// INVALID_ARGUMENT as CheckSimulation, and if no request arrives in the time that counts. RESOURCE_EXHAUSTED if no
// number of verifiers serves the load, or no number of replicas answers in time.
absl::StatusOr<Sizing> Size(const Profile& profile, const SizingQuestion& question, const SimulatedLoad& load);

}  // namespace foretoken::client
