// SPDX-License-Identifier: Apache-2.0
#include "client/comparison.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;

std::vector<GenerateRequest> AllOneWay(std::span<const GenerateRequest> requests, bool on) {
  std::vector<GenerateRequest> copies;
  for (size_t i = 0; i < requests.size(); ++i) copies.push_back(OneWay(requests[i], on, i));
  return copies;
}

// Sends requests that do not count, because a server is slow at first. A tenant of their own keeps the server's memory
// of them from helping the counted requests.
void WarmUp(GenerationClient& client, std::span<const GenerateRequest> round, const LoadOptions& options) {
  std::vector<GenerateRequest> requests(round.begin(), round.end());
  for (GenerateRequest& request : requests) request.set_tenant(absl::StrCat(request.tenant(), "/first"));
  RunLoad(client, requests, options, [](const TimedGeneration&) {});
}

std::optional<std::string> Difference(const std::string& where, const NamedOutputs& a, const NamedOutputs& b,
                                      size_t request_idx) {
  const std::vector<Sample>& a_samples = a.generations[request_idx].generation.samples;
  const std::vector<Sample>& b_samples = b.generations[request_idx].generation.samples;
  for (size_t s = 0; s < std::max(a_samples.size(), b_samples.size()); ++s) {
    const std::string sample = absl::StrCat(where, ", sample ", s, ": ");
    if (s >= a_samples.size() || s >= b_samples.size()) {
      return absl::StrCat(sample, "came only with ", s < b_samples.size() ? b.name : a.name);
    }
    const std::vector<uint32_t>& a_ids = a_samples[s].token_ids;
    const std::vector<uint32_t>& b_ids = b_samples[s].token_ids;
    if (a_ids == b_ids) continue;
    const auto [a_at, b_at] = std::mismatch(a_ids.begin(), a_ids.end(), b_ids.begin(), b_ids.end());
    const auto show = [](auto at, const auto& ids) {
      return at == ids.end() ? std::string("absent") : absl::StrCat(*at);
    };
    return absl::StrCat(sample, "token ", a_at - a_ids.begin(), " is ", show(a_at, a_ids), " with ", a.name, " and ",
                        show(b_at, b_ids), " with ", b.name);
  }
  return std::nullopt;
}

void Append(LoadResult part, LoadResult& whole) {
  std::move(part.generations.begin(), part.generations.end(), std::back_inserter(whole.generations));
  whole.wall += part.wall;
}

bool BothSucceeded(const NamedOutputs& a, const NamedOutputs& b, size_t request_idx) {
  return a.generations[request_idx].status.ok() && b.generations[request_idx].status.ok();
}

}  // namespace

std::string ToLine(const Speedup& speedup) {
  const std::string interval = absl::StrFormat("[%.2f, %.2f]", speedup.ratio.low, speedup.ratio.high);
  if (!speedup.is_sure()) {
    return absl::StrFormat("speedup %.2fx, rounds %s: %d %s too few to tell it from noise; send more requests",
                           speedup.ratio.median, interval, speedup.num_rounds, speedup.num_rounds == 1 ? "is" : "are");
  }
  if (speedup.is_noise()) {
    return absl::StrFormat("no speedup that stands out from the noise: %.2fx, %s with 95 %% confidence over %d rounds",
                           speedup.ratio.median, interval, speedup.num_rounds);
  }
  return absl::StrFormat("speedup %.2fx, %s with 95 %% confidence over %d rounds", speedup.ratio.median, interval,
                         speedup.num_rounds);
}

std::vector<std::string> Differences(const NamedOutputs& a, const NamedOutputs& b) {
  std::vector<std::string> differences;
  for (size_t i = 0; i < std::min(a.generations.size(), b.generations.size()); ++i) {
    if (!BothSucceeded(a, b, i)) continue;
    if (auto difference = Difference(absl::StrCat("request ", i), a, b, i)) {
      differences.push_back(*std::move(difference));
    }
  }
  return differences;
}

Comparison Compare(GenerationClient& client, std::span<const GenerateRequest> requests, const LoadOptions& options,
                   absl::FunctionRef<void(const TimedGeneration&)> on_done) {
  const std::vector<GenerateRequest> ways[] = {AllOneWay(requests, false), AllOneWay(requests, true)};
  BothWays results;
  const size_t round_size = std::max(1, options.num_clients);
  for (const std::vector<GenerateRequest>& way : ways) {
    WarmUp(client, std::span(way).first(std::min(round_size, way.size())), options);
  }
  for (size_t begin = 0, round = 0; begin < requests.size(); begin += round_size, ++round) {
    const size_t length = std::min(round_size, requests.size() - begin);
    double rates[2];
    for (const size_t way : {round % 2, 1 - round % 2}) {
      LoadResult part = RunLoad(client, std::span(ways[way]).subspan(begin, length), options, on_done);
      rates[way] = Summarise(part.generations, part.wall).tokens_per_s;
      Append(std::move(part), way == 0 ? results.off : results.on);
    }
    if (rates[0] > 0) results.ratios.push_back(rates[1] / rates[0]);
  }
  return Summarise(results);
}

Comparison Summarise(const BothWays& results) {
  const NamedOutputs off = {.name = "speculation off", .generations = results.off.generations};
  const NamedOutputs on = {.name = "speculation on", .generations = results.on.generations};
  Comparison comparison = {.off = Summarise(off.generations, results.off.wall),
                           .on = Summarise(on.generations, results.on.wall),
                           .differences = Differences(off, on)};
  for (size_t i = 0; i < off.generations.size(); ++i) {
    comparison.num_compared += BothSucceeded(off, on, i) ? 1 : 0;
    comparison.first_error.Update(off.generations[i].status);
    comparison.first_error.Update(on.generations[i].status);
  }
  const bool is_fair = comparison.num_compared == comparison.off.num_requests && !results.ratios.empty();
  if (is_fair) {
    comparison.speedup =
        Speedup{.ratio = MedianInterval(results.ratios), .num_rounds = static_cast<int>(results.ratios.size())};
  }
  return comparison;
}

absl::Status CheckSpeculates(const GenerateRequest& request) {
  if (request.speculation().mode() != foretoken::v1::SPECULATION_MODE_OFF) return absl::OkStatus();
  return absl::InvalidArgumentError("--speculation: expected auto or always to compare with no speculation, got off");
}

bool KeepsTokens(const GenerateRequest& request) {
  const bool is_greedy = request.sampling().has_temperature() && request.sampling().temperature() == 0;
  return request.verification() != foretoken::v1::VERIFICATION_RULE_REJECTION_SAMPLING || is_greedy;
}

absl::Status CheckKeepsTokens(const GenerateRequest& request) {
  if (KeepsTokens(request)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--verification: expected keyed_draw, or --temperature=0, to compare tokens, got rejection_sampling, under which "
      "speculation may change them");
}

GenerateRequest OneWay(GenerateRequest request, bool on, uint64_t default_seed) {
  foretoken::v1::SpeculationOptions& speculation = *request.mutable_speculation();
  if (!on) {
    speculation.set_mode(foretoken::v1::SPECULATION_MODE_OFF);
  } else if (speculation.mode() != foretoken::v1::SPECULATION_MODE_ALWAYS) {
    speculation.set_mode(foretoken::v1::SPECULATION_MODE_AUTO);
  }
  request.set_tenant(absl::StrCat(request.tenant(), on ? "/speculation-on" : "/speculation-off"));
  if (!request.sampling().has_seed()) request.mutable_sampling()->set_seed(default_seed);
  return request;
}

std::string Verdict(const Comparison& comparison) {
  std::string verdict;
  for (const std::string& difference : comparison.differences) absl::StrAppend(&verdict, difference, "\n");
  if (comparison.speedup.has_value()) absl::StrAppend(&verdict, ToLine(*comparison.speedup), "\n");
  absl::StrAppend(&verdict, "token ids ", comparison.differences.empty() ? "equal" : "NOT equal", " in ",
                  comparison.num_compared, " of ", comparison.off.num_requests, " requests\n");
  return verdict;
}

nlohmann::ordered_json ToJson(const Comparison& comparison) {
  nlohmann::ordered_json json = {{"speculation_off", ToJson(comparison.off)}, {"speculation_on", ToJson(comparison.on)},
                                 {"num_compared", comparison.num_compared},   {"differences", comparison.differences},
                                 {"all_equal", comparison.AllEqual()},        {"speedup", nullptr}};
  if (!comparison.speedup.has_value()) return json;
  const Speedup& speedup = *comparison.speedup;
  json["speedup"] = speedup.ratio.median;
  json["speedup_interval"] = {speedup.ratio.low, speedup.ratio.high};
  json["speedup_is_noise"] = speedup.is_noise();
  return json;
}

}  // namespace foretoken::client
