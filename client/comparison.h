// SPDX-License-Identifier: Apache-2.0
// Compares the same requests with speculation off and on: the speedup, and whether the tokens are equal.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/generation_stats.h"
#include "client/load.h"
#include "client/median_interval.h"
#include "client/timed_generation.h"
#include "nlohmann/json_fwd.hpp"

namespace foretoken::client {

// The ratio of tokens per second with speculation on and off, over rounds.
struct Speedup {
  MedianWithInterval ratio;
  int num_rounds = 0;

  // Whether there are at least six rounds, so that an interval with 95 % confidence exists.
  bool is_sure() const { return ratio.confidence >= 0.95; }
  // Whether the ratio may differ from 1 by chance alone.
  bool is_noise() const { return !is_sure() || (ratio.low <= 1 && ratio.high >= 1); }
};

// "speedup 1.62x, [1.55, 1.71] with 95 % confidence over 20 rounds", or the reason why there is no sure result.
std::string ToLine(const Speedup& speedup);

struct Comparison {
  GenerationStats off;
  GenerationStats on;
  int num_compared = 0;  // requests that succeeded both with speculation off and on
  // "request 3, sample 0: token 17 is 42 with speculation off and 43 with speculation on"
  std::vector<std::string> differences = {};
  absl::Status first_error = {};  // of the requests with either setting
  // The ratio of tokens per second with speculation on and off. Unset: a request failed, or no token came.
  std::optional<Speedup> speedup = std::nullopt;

  bool AllEqual() const { return differences.empty() && num_compared == off.num_requests; }
};

// The differences and the speedup, one per line. The last line is, for example, "token ids equal in 6 of 6 requests".
std::string Verdict(const Comparison& comparison);

// The results of the same requests, in the same order, with speculation off and on, in rounds.
struct BothWays {
  LoadResult off;
  LoadResult on;
  std::vector<double> ratios = {};  // of each round: tokens per second with speculation on, relative to off
};
Comparison Summarise(const BothWays& results);

// INVALID_ARGUMENT names --speculation if the request asks for no speculation, so that there is nothing to compare.
absl::Status CheckSpeculates(const foretoken::v1::GenerateRequest& request);

// Whether the tokens are the same with speculation off and on. Rejection sampling promises this at temperature 0 only
// (LOSSLESS.md). An unset temperature may be any.
bool KeepsTokens(const foretoken::v1::GenerateRequest& request);
// INVALID_ARGUMENT names --verification unless the request keeps its tokens.
absl::Status CheckKeepsTokens(const foretoken::v1::GenerateRequest& request);

// The request with speculation off or on. On is SPECULATION_MODE_AUTO, or SPECULATION_MODE_ALWAYS if the request asks
// for it. Without a seed the request gets the default seed. Off and on are two tenants, so neither finds the other's
// text in the prefix cache or in the proposers' memory.
foretoken::v1::GenerateRequest OneWay(foretoken::v1::GenerateRequest request, bool on, uint64_t default_seed);

// Sends the requests in rounds, with one request per client. Each round runs once with speculation off and once with
// speculation on. The order changes from round to round, so a machine that slows down slows both. A first round runs
// both ways with tenants of its own and does not count, because a server is slow at first. A request without a seed
// gets its index as seed.
Comparison Compare(GenerationClient& client, std::span<const foretoken::v1::GenerateRequest> requests,
                   const LoadOptions& options, absl::FunctionRef<void(const TimedGeneration&)> on_done);

// The outputs of some requests with one setting.
struct NamedOutputs {
  absl::string_view name;  // "speculation off"
  std::span<const TimedGeneration> generations;
};

// The differences between the tokens of the same requests, at most one line per request. Leaves out requests that
// failed in either.
std::vector<std::string> Differences(const NamedOutputs& a, const NamedOutputs& b);

nlohmann::ordered_json ToJson(const Comparison& comparison);

}  // namespace foretoken::client
