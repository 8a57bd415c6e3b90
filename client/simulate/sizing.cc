// SPDX-License-Identifier: Apache-2.0
#include "client/simulate/sizing.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::client {
namespace {

constexpr int32_t kMostVerifiers = 16'384;
constexpr int32_t kMostReplicas = 65'536;
constexpr double kMaxLateShare = 0.01;
constexpr double kRatePrecision = 1.02;  // the breaking rate is known up to this factor
constexpr double kMaxRateFactor = 1024;

// The smallest number for which the condition holds, if it holds for all larger ones. 0: it does not hold for the most.
int32_t Fewest(int32_t most, const std::function<bool(int32_t)>& holds) {
  int32_t high = 1;
  while (!holds(high)) {
    if (high == most) return 0;
    high = std::min(most, 2 * high);
  }
  int32_t low = high / 2;  // does not hold, or 0
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

absl::StatusOr<Sizing> Size(const Profile& profile, const SizingQuestion& question, const SimulatedLoad& load) {
  SimulatedCluster cluster = question.cluster;
  cluster.num_verifiers = question.num_verifiers.value_or(1);
  // A number that the question leaves open begins with the most, which is as if there were no limit.
  std::vector<std::optional<int32_t>> asked = question.num_replicas;
  if (asked.size() < profile.proposers.size()) asked.resize(profile.proposers.size());
  cluster.num_replicas.clear();
  for (const std::optional<int32_t>& num : asked) cluster.num_replicas.push_back(num.value_or(kMostReplicas));
  FT_RETURN_IF_ERROR(CheckSimulation(profile, cluster, load));
  const auto serves = [&](const SimulatedCluster& tried, double rate) {
    SimulatedLoad tried_load = load;
    tried_load.rate = rate;
    const SimulationResult result = Simulate(profile, tried, tried_load);
    if (result.refused_share > 0) return false;
    const std::optional<Distribution>& first_token_ms = result.time_to_first_token_ms;
    return !first_token_ms.has_value() || first_token_ms->p99 <= question.max_first_token_ms;
  };
  if (!question.num_verifiers.has_value() && load.rate > 0) {
    cluster.num_verifiers = Fewest(kMostVerifiers, [&](int32_t num) {
      SimulatedCluster tried = cluster;
      tried.num_verifiers = num;
      return serves(tried, load.rate);
    });
    if (cluster.num_verifiers == 0) {
      return absl::ResourceExhaustedError(absl::StrCat(kMostVerifiers, " verifiers do not give the first token within ",
                                                       question.max_first_token_ms, " ms"));
    }
  }
  for (size_t i = 0; cluster.speculates && i < asked.size(); ++i) {
    if (asked[i].has_value()) continue;
    cluster.num_replicas[i] = Fewest(kMostReplicas, [&](int32_t num) {
      SimulatedCluster tried = cluster;
      tried.num_replicas[i] = num;
      return Simulate(profile, tried, load).proposers[i].late_share <= kMaxLateShare;
    });
    if (cluster.num_replicas[i] == 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMostReplicas, " replicas of ", profile.proposers[i].name, " do not answer in time"));
    }
  }
  Sizing sizing = {.cluster = cluster, .result = Simulate(profile, cluster, load)};
  if (load.rate <= 0) return sizing;
  if (sizing.result.num_arrived == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("seconds: expected a time in which requests arrive after the first third, got ", load.seconds));
  }
  double good = load.rate, bad = load.rate;
  while (serves(cluster, bad)) {
    if (bad >= load.rate * kMaxRateFactor) return sizing;  // no rate up to this one breaks it
    good = bad;
    bad *= 2;
  }
  if (good == bad) return sizing;  // the asked rate breaks it already, and the result shows how
  while (bad / good > kRatePrecision) {
    const double middle = std::sqrt(good * bad);
    (serves(cluster, middle) ? good : bad) = middle;
  }
  sizing.breaking_rate = bad;
  return sizing;
}

}  // namespace foretoken::client
