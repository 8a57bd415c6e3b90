// SPDX-License-Identifier: Apache-2.0
#include "client/comparison.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

using foretoken::v1::GenerateRequest;

std::vector<GenerateRequest> WithSpeculation(std::span<const GenerateRequest> requests, bool on) {
  std::vector<GenerateRequest> copies(requests.begin(), requests.end());
  for (size_t i = 0; i < copies.size(); ++i) {
    GenerateRequest& request = copies[i];
    request.mutable_speculation()->set_mode(on ? foretoken::v1::SPECULATION_MODE_AUTO
                                               : foretoken::v1::SPECULATION_MODE_OFF);
    request.set_tenant(absl::StrCat(request.tenant(), on ? "/speculation-on" : "/speculation-off"));
    if (!request.sampling().has_seed()) request.mutable_sampling()->set_seed(i);
  }
  return copies;
}

void AppendDifference(size_t request_idx, const Generation& off, const Generation& on,
                      std::vector<std::string>& differences) {
  for (size_t s = 0; s < std::max(off.samples.size(), on.samples.size()); ++s) {
    const std::string where = absl::StrCat("request ", request_idx, ", sample ", s, ": ");
    if (s >= off.samples.size() || s >= on.samples.size()) {
      differences.push_back(absl::StrCat(where, "came only with speculation ", s < on.samples.size() ? "on" : "off"));
      return;
    }
    const std::vector<uint32_t>& off_ids = off.samples[s].token_ids;
    const std::vector<uint32_t>& on_ids = on.samples[s].token_ids;
    if (off_ids == on_ids) continue;
    const auto [off_at, on_at] = std::mismatch(off_ids.begin(), off_ids.end(), on_ids.begin(), on_ids.end());
    const auto show = [](auto at, const auto& ids) {
      return at == ids.end() ? std::string("absent") : absl::StrCat(*at);
    };
    differences.push_back(absl::StrCat(where, "token ", off_at - off_ids.begin(), " is ", show(off_at, off_ids),
                                       " with speculation off and ", show(on_at, on_ids), " with it on"));
    return;
  }
}

void Append(LoadResult part, LoadResult& whole) {
  std::move(part.generations.begin(), part.generations.end(), std::back_inserter(whole.generations));
  whole.wall += part.wall;
}

}  // namespace

Comparison Compare(GenerationClient& client, std::span<const GenerateRequest> requests, const LoadOptions& options,
                   absl::FunctionRef<void(const TimedGeneration&)> on_done) {
  const std::vector<GenerateRequest> ways[] = {WithSpeculation(requests, false), WithSpeculation(requests, true)};
  LoadResult results[2];
  const size_t round_size = std::max(1, options.num_clients);
  for (size_t begin = 0, round = 0; begin < requests.size(); begin += round_size, ++round) {
    const size_t length = std::min(round_size, requests.size() - begin);
    for (const size_t way : {round % 2, 1 - round % 2}) {
      Append(RunLoad(client, std::span(ways[way]).subspan(begin, length), options, on_done), results[way]);
    }
  }
  Comparison comparison = {.off = Summarise(results[0].generations, results[0].wall),
                           .on = Summarise(results[1].generations, results[1].wall)};
  for (size_t i = 0; i < requests.size(); ++i) {
    const TimedGeneration& off = results[0].generations[i];
    const TimedGeneration& on = results[1].generations[i];
    if (!off.status.ok() || !on.status.ok()) continue;
    ++comparison.num_compared;
    AppendDifference(i, off.generation, on.generation, comparison.differences);
  }
  const bool is_fair = comparison.num_compared == comparison.off.num_requests && comparison.off.tokens_per_s > 0;
  if (is_fair) comparison.speedup = comparison.on.tokens_per_s / comparison.off.tokens_per_s;
  return comparison;
}

nlohmann::ordered_json ToJson(const Comparison& comparison) {
  nlohmann::ordered_json json = {{"speculation_off", ToJson(comparison.off)}, {"speculation_on", ToJson(comparison.on)},
                                 {"num_compared", comparison.num_compared},   {"differences", comparison.differences},
                                 {"all_equal", comparison.AllEqual()},        {"speedup", nullptr}};
  if (comparison.speedup.has_value()) json["speedup"] = *comparison.speedup;
  return json;
}

}  // namespace foretoken::client
