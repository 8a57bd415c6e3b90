// SPDX-License-Identifier: Apache-2.0
// Statistics over many generations, for people and programs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/timed_generation.h"
#include "nlohmann/json_fwd.hpp"

namespace foretoken::client {

struct Distribution {
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

// Unset: there are no values.
std::optional<Distribution> MakeDistribution(std::vector<double> values);

struct ProposerCounts {
  uint64_t proposed_tokens = 0;
  uint64_t accepted_tokens = 0;
};

struct GenerationStats {
  int num_requests = 0;
  int num_failed = 0;
  std::map<std::string, int> errors = {};  // status code -> requests
  uint64_t num_tokens = 0;                 // generated, all samples
  double wall_s = 0;
  double tokens_per_s = 0;                                            // num_tokens / wall_s
  std::optional<Distribution> time_to_first_token_ms = std::nullopt;  // unset: no token came
  // The time per token, for each token after a sample's first message: the tokens of a message share the time since the
  // message before. Messages that arrive within a millisecond count as one, because they waited together on the way.
  // Unset: no sample had a second message.
  std::optional<Distribution> inter_token_ms = std::nullopt;
  std::optional<double> tokens_per_step = std::nullopt;  // the mean accepted length; unset: no sample was completed
  std::map<std::string, ProposerCounts> proposers = {};
  // The sums of the fields of Usage, over all completed samples.
  std::vector<uint64_t> accepted_lengths = {};
  uint64_t proposed_nodes = 0;
  uint64_t verified_nodes = 0;
  uint64_t accepted_prediction_tokens = 0;
  uint64_t rejected_prediction_tokens = 0;
};

// The share of the steps that accepted this many guesses.
struct AcceptedShare {
  std::string lengths;  // "4-7"
  double share = 0;
};
// The shares for 0, 1, 2-3, 4-7, 8-15, and 16 or more. Empty: there was no step.
std::vector<AcceptedShare> AcceptedShares(const GenerationStats& stats);

// `wall` is the time from the start of the first call to the end of the last, or to its last tokens.
GenerationStats Summarise(std::span<const TimedGeneration> generations, absl::Duration wall);

nlohmann::ordered_json ToJson(const GenerationStats& stats);

// One line without a line end: "96 tokens, 310.4 tokens/s, 2.41 tokens per step, first token after 8.1 ms, ngram
// accepted 55 of 140, steps that accepted 0: 40%, 1: 25%, 2-3: 35%, 20 of 30 predicted tokens came". Here tokens/s is
// the rate that a reader of the stream sees: 1 / mean inter_token_ms. The line leaves out parts without a value.
std::string ToLine(const GenerationStats& stats);

// The nearest-rank percentile. `sorted` must be ascending and not empty; fraction is in [0, 1].
double Percentile(std::span<const double> sorted, double fraction);

}  // namespace foretoken::client
