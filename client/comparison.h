// SPDX-License-Identifier: Apache-2.0
// The same requests with speculation off and on: how much faster, and are the tokens equal?
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "client/generation_stats.h"
#include "client/load.h"
#include "client/median_interval.h"
#include "client/timed_generation.h"
#include "nlohmann/json_fwd.hpp"

namespace foretoken::client {

// Of the rounds' ratios of tokens per second.
struct Speedup {
  MedianWithInterval ratio;
  int num_rounds = 0;

  // Fewer than six rounds have no interval that is sure enough.
  bool is_sure() const { return ratio.confidence >= 0.95; }
  // Whether the rounds may differ by chance alone.
  bool is_noise() const { return !is_sure() || (ratio.low <= 1 && ratio.high >= 1); }
};

// "speedup 1.62x, [1.55, 1.71] with 95 % confidence over 20 rounds", or why nothing can be said.
std::string ToLine(const Speedup& speedup);

struct Comparison {
  GenerationStats off;
  GenerationStats on;
  int num_compared = 0;  // requests that both ways completed
  // "request 3, sample 0: token 17 is 42 with speculation off and 43 with speculation on"
  std::vector<std::string> differences = {};
  absl::Status first_error = {};  // of either way
  // Tokens per second with speculation on, relative to off. Unset: a request failed, or no token came.
  std::optional<Speedup> speedup = std::nullopt;

  bool AllEqual() const { return differences.empty() && num_compared == off.num_requests; }
};

// The differences and the speedup, a line each; the last line is, for example,
// "token ids equal in 6 of 6 requests".
std::string Verdict(const Comparison& comparison);

// The same requests, in the same order, sent both ways in rounds.
struct BothWays {
  LoadResult off;
  LoadResult on;
  std::vector<double> ratios = {};  // of each round: tokens per second with speculation on, relative to off
};
Comparison Summarise(const BothWays& results);

// The request with speculation off or on. Without a seed it gets the default one. The two ways are two tenants, so that
// neither finds what the other left in the prefix cache and in the proposers' memory.
foretoken::v1::GenerateRequest OneWay(foretoken::v1::GenerateRequest request, bool on, uint64_t default_seed);

// Sends the requests in rounds of one per client, each round once with speculation off and once on, the order changing
// from round to round, so that a machine that slows down slows both. A first round is sent both ways by tenants
// of its own and not counted, for a server is slow at first. A request without a seed gets its index.
Comparison Compare(GenerationClient& client, std::span<const foretoken::v1::GenerateRequest> requests,
                   const LoadOptions& options, absl::FunctionRef<void(const TimedGeneration&)> on_done);

// What one way of sending some requests gave.
struct NamedOutputs {
  absl::string_view name;  // "speculation off"
  std::span<const TimedGeneration> generations;
};

// Where the tokens of the same requests differ, one line a request at most; requests that failed in either are left
// out.
std::vector<std::string> Differences(const NamedOutputs& a, const NamedOutputs& b);

nlohmann::ordered_json ToJson(const Comparison& comparison);

}  // namespace foretoken::client
