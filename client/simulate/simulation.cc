// SPDX-License-Identifier: Apache-2.0
#include "client/simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/simulate/levels.h"
#include "client/simulate/prompt_share.h"
#include "common/base/status_macros.h"

namespace foretoken::client {
namespace {

constexpr double kWarmUpShare = 1.0 / 3;
// From the end of a client's request to the arrival of its next one. It is longer than the pause between two steps, so
// the next request waits for a step, as it does with a real server.
constexpr double kTurnaroundMs = 0.2;
// When a client of a closed loop tries again after a refusal, as the verifier's pushback says.
constexpr double kRetryMs = 1000;
constexpr int32_t kMaxVerifiers = 100'000;
constexpr int32_t kMaxStepRows = 1'000'000;
constexpr double kMaxBurstWindowMs = 3'600'000;

struct Request {
  double arrived_ms = 0;
  double began_ms = 0;                   // when it left the queue
  std::optional<double> first_token_ms;  // unset until the step that computes the prompt's last row has ended
  int32_t prompt_left = 0;               // tokens to compute
  int32_t output_left = 0;
  int32_t output_tokens = 0;
  bool has_tree = false;  // for the coming step
};

struct Verifier {
  std::vector<Request> running;
  std::deque<Request> queue;
  bool is_stepping = false;
};

// The replicas of a proposer.
struct Group {
  double proposal_ms = 0;
  std::vector<double> free_at_ms;  // [replicas]
  uint64_t next_replica = 0;
  double busy_ms = 0;  // counted after the warm-up, as the rest
  int64_t num_asked = 0, num_late = 0;
};

// What steps with n sequences do.
struct StepTable {
  double plain_ms = 0;
  double speculative_ms = 0;
  std::vector<double> accepted;  // cumulative shares
};

struct Event {
  double at_ms = 0;
  std::optional<int32_t> verifier_idx;  // whose step ends; unset: a request arrives
  bool operator>(const Event& other) const { return at_ms > other.at_ms; }
};

class Simulation {
 public:
  Simulation(const Profile& profile, const SimulatedCluster& cluster, const SimulatedLoad& load)
      : profile_(profile),
        cluster_(cluster),
        load_(load),
        end_ms_(load.seconds * 1e3),
        begin_ms_(end_ms_ * kWarmUpShare),
        arrivals_(~load.seed),
        random_(load.seed),
        verifiers_(cluster.num_verifiers) {
    for (size_t i = 0; cluster.speculates && i < profile.proposers.size(); ++i) {
      const int32_t num = cluster.num_replicas.empty() ? cluster.num_verifiers : cluster.num_replicas[i];
      groups_.push_back({.proposal_ms = profile.proposers[i].proposal_ms, .free_at_ms = std::vector<double>(num)});
    }
    tables_.resize(cluster.max_running + 1);
    for (int32_t n = 1; n <= cluster.max_running; ++n) {
      tables_[n] = {.plain_ms = StepMs(profile.plain, n),
                    .speculative_ms = StepMs(profile.speculative, n),
                    .accepted = AcceptedLengths(profile.speculative, n)};
      std::partial_sum(tables_[n].accepted.begin(), tables_[n].accepted.end(), tables_[n].accepted.begin());
    }
  }

  SimulationResult Run() {
    if (load_.rate > 0) {
      events_.push({.at_ms = NextArrival(0)});
    } else {
      for (int32_t i = 0; i < load_.num_clients; ++i) events_.push({.at_ms = 0});
    }
    while (!events_.empty() && events_.top().at_ms < end_ms_) {
      const Event event = events_.top();
      events_.pop();
      if (event.verifier_idx.has_value()) {
        EndStep(*event.verifier_idx, event.at_ms);
      } else {
        Arrive(event.at_ms);
        if (load_.rate > 0) events_.push({.at_ms = NextArrival(event.at_ms)});
      }
    }
    CountWaiting();
    return Summarise();
  }

 private:
  double Uniform() { return std::uniform_real_distribution<double>()(random_); }
  double NextArrival(double now) { return now + std::exponential_distribution<double>(load_.rate / 1e3)(arrivals_); }
  bool IsCounted(double at_ms) const { return at_ms >= begin_ms_; }

  void Arrive(double now) {
    const ProfileRequest& lengths = profile_.requests[arrivals_() % profile_.requests.size()];
    const auto idx = static_cast<int32_t>(next_verifier_++ % verifiers_.size());
    Verifier& verifier = verifiers_[idx];
    if (IsCounted(now)) ++num_arrived_;
    if (static_cast<int32_t>(verifier.queue.size()) >= cluster_.max_queued) {
      if (IsCounted(now)) ++num_refused_;
      if (load_.rate <= 0) events_.push({.at_ms = now + kRetryMs});
      return;
    }
    verifier.queue.push_back({.arrived_ms = now,
                              .prompt_left = lengths.prompt_tokens,
                              .output_left = lengths.output_tokens,
                              .output_tokens = lengths.output_tokens});
    if (!verifier.is_stepping) BeginStep(idx, now);
  }

  // Plans a step: how many tokens of prompts it computes, and how long it takes. The plan is carried out at its end.
  void BeginStep(int32_t idx, double now) {
    Verifier& verifier = verifiers_[idx];
    while (!verifier.queue.empty() && static_cast<int32_t>(verifier.running.size()) < cluster_.max_running) {
      verifier.running.push_back(verifier.queue.front());
      verifier.running.back().began_ms = now;
      verifier.queue.pop_front();
    }
    verifier.is_stepping = !verifier.running.empty();
    if (!verifier.is_stepping) return;
    std::vector<double> first_token_ms;
    int32_t num_with_tree = 0;
    for (const Request& request : verifier.running) {
      if (!request.first_token_ms.has_value()) continue;
      first_token_ms.push_back(*request.first_token_ms);
      if (request.has_tree) ++num_with_tree;
    }
    const int32_t num_prompt_rows = PlanPrompts(verifier, first_token_ms);
    const auto num_decoding = static_cast<int32_t>(first_token_ms.size());
    double step_ms = 0;
    if (num_decoding > 0) {
      const StepTable& table = tables_[num_decoding];
      step_ms = table.plain_ms + (table.speculative_ms - table.plain_ms) * num_with_tree / num_decoding;
    }
    if (num_prompt_rows > 0) {
      step_ms += StepMsOfRows(profile_.rows, num_decoding + num_prompt_rows);
      if (num_decoding > 0) step_ms -= StepMsOfRows(profile_.rows, num_decoding);
    }
    if (IsCounted(now)) busy_ms_ += std::min(step_ms, end_ms_ - now);
    events_.push({.at_ms = now + step_ms, .verifier_idx = idx});
  }

  // Takes tokens off the prompts. Returns the number of their rows.
  int32_t PlanPrompts(Verifier& verifier, std::span<const double> first_token_ms) const {
    std::vector<SimulatedPrompt> prompts;
    for (const Request& request : verifier.running) {
      if (request.prompt_left > 0) prompts.push_back({.num_left = request.prompt_left, .began_ms = request.began_ms});
    }
    if (prompts.empty()) return 0;
    const std::vector<int32_t> shares =
        SharePromptRows(prompts, NumPromptRows(prompts, first_token_ms, cluster_.prompts, profile_.rows));
    auto share = shares.begin();
    for (Request& request : verifier.running) {
      if (request.prompt_left > 0) request.prompt_left -= *share++;
    }
    return std::accumulate(shares.begin(), shares.end(), 0);
  }

  void EndStep(int32_t idx, double now) {
    Verifier& verifier = verifiers_[idx];
    const auto num_decoding =
        std::ranges::count_if(verifier.running, [](const Request& r) { return r.first_token_ms.has_value(); });
    const StepTable& table = tables_[std::max<int64_t>(1, num_decoding)];
    for (Request& request : verifier.running) {
      if (request.prompt_left > 0) continue;
      int32_t num_tokens = 1;
      const bool is_first = !request.first_token_ms.has_value();
      if (is_first) {
        request.first_token_ms = now;
        if (IsCounted(request.arrived_ms)) first_token_ms_.push_back(now - request.arrived_ms);
      } else {
        if (request.has_tree) {
          const auto found = std::ranges::upper_bound(table.accepted, Uniform());
          num_tokens += static_cast<int32_t>(
              std::min<int64_t>(found - table.accepted.begin(), static_cast<int64_t>(table.accepted.size()) - 1));
        }
        if (IsCounted(now)) ++num_draws_;
      }
      num_tokens = std::min(num_tokens, request.output_left);
      request.output_left -= num_tokens;
      if (IsCounted(now)) num_tokens_ += num_tokens;
      if (IsCounted(now) && !is_first) num_decoded_ += num_tokens;
      if (request.output_left > 0) request.has_tree = Ask(now, table.speculative_ms);
    }
    const auto ended = std::stable_partition(verifier.running.begin(), verifier.running.end(),
                                             [](const Request& r) { return r.output_left > 0; });
    for (auto request = ended; request != verifier.running.end(); ++request) {
      CountEnd(*request, now);
      if (load_.rate <= 0) events_.push({.at_ms = now + kTurnaroundMs});
    }
    verifier.running.erase(ended, verifier.running.end());
    BeginStep(idx, now);
  }

  // Asks a replica of every proposer. Returns whether all begin within this time, which is that of a step.
  bool Ask(double now, double patience_ms) {
    if (!cluster_.speculates) return false;
    bool are_in_time = true;
    for (Group& group : groups_) are_in_time = Ask(group, now, patience_ms) && are_in_time;
    return are_in_time;
  }

  bool Ask(Group& group, double now, double patience_ms) const {
    double& free_at_ms = group.free_at_ms[group.next_replica++ % group.free_at_ms.size()];
    if (IsCounted(now)) ++group.num_asked;
    if (free_at_ms - now > patience_ms) {
      if (IsCounted(now)) ++group.num_late;
      return false;
    }
    free_at_ms = std::max(free_at_ms, now) + group.proposal_ms;
    if (IsCounted(now)) group.busy_ms += group.proposal_ms;
    return true;
  }

  void CountEnd(const Request& request, double now) {
    if (!IsCounted(now)) return;
    ++num_completed_;
    if (request.output_tokens > 1) {
      inter_token_ms_.push_back((now - *request.first_token_ms) / (request.output_tokens - 1));
    }
  }

  // A request that still waits for its first token counts as if the token came at the end of the simulation.
  void CountWaiting() {
    const auto count = [this](const Request& request) {
      if (request.first_token_ms.has_value() || !IsCounted(request.arrived_ms)) return;
      first_token_ms_.push_back(end_ms_ - request.arrived_ms);
    };
    for (const Verifier& verifier : verifiers_) {
      std::ranges::for_each(verifier.running, count);
      std::ranges::for_each(verifier.queue, count);
    }
  }

  SimulationResult Summarise() {
    const double seconds = (end_ms_ - begin_ms_) / 1e3;
    SimulationResult result = {.num_arrived = num_arrived_};
    result.tokens_per_s = static_cast<double>(num_tokens_) / seconds;
    result.requests_per_s = static_cast<double>(num_completed_) / seconds;
    if (num_arrived_ > 0) result.refused_share = static_cast<double>(num_refused_) / static_cast<double>(num_arrived_);
    result.time_to_first_token_ms = MakeDistribution(std::move(first_token_ms_));
    result.inter_token_ms = MakeDistribution(std::move(inter_token_ms_));
    if (num_draws_ > 0) result.tokens_per_step = static_cast<double>(num_decoded_) / static_cast<double>(num_draws_);
    result.verifier_busy_share = busy_ms_ / (end_ms_ - begin_ms_) / static_cast<double>(verifiers_.size());
    for (const Group& group : groups_) {
      SimulatedProposer& proposer = result.proposers.emplace_back();
      proposer.busy_share = group.busy_ms / (end_ms_ - begin_ms_) / static_cast<double>(group.free_at_ms.size());
      if (group.num_asked > 0) {
        proposer.late_share = static_cast<double>(group.num_late) / static_cast<double>(group.num_asked);
      }
    }
    return result;
  }

  const Profile& profile_;
  const SimulatedCluster cluster_;
  const SimulatedLoad load_;
  const double end_ms_, begin_ms_;
  std::mt19937_64 arrivals_;       // draws times and lengths of requests, so that they are the same for every cluster
  std::mt19937_64 random_;         // draws accepted guesses
  std::vector<StepTable> tables_;  // [sequences]
  std::vector<Verifier> verifiers_;
  std::vector<Group> groups_;  // of the proposers that are asked
  uint64_t next_verifier_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;

  // Counted after the warm-up.
  int64_t num_arrived_ = 0, num_refused_ = 0, num_completed_ = 0;
  int64_t num_tokens_ = 0, num_decoded_ = 0, num_draws_ = 0;
  double busy_ms_ = 0;
  std::vector<double> first_token_ms_, inter_token_ms_;
};

template <typename Expected, typename Got>
absl::Status Wrong(absl::string_view field, const Expected& expected, const Got& got) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected ", expected, ", got ", got));
}

absl::Status CheckPrompts(const PromptBounds& prompts, int32_t max_running) {
  if (prompts.max_step_rows < max_running || prompts.max_step_rows > kMaxStepRows) {
    return Wrong("max_step_rows", absl::StrCat("max_running, ", max_running, ", to ", kMaxStepRows),
                 prompts.max_step_rows);
  }
  if (!(prompts.max_inter_token_growth >= 1)) {
    return Wrong("max_inter_token_growth", "at least 1", prompts.max_inter_token_growth);
  }
  if (prompts.max_burst_prompt_tokens < 0) {
    return Wrong("max_burst_prompt_tokens", "at least 0", prompts.max_burst_prompt_tokens);
  }
  if (!(prompts.burst_window_ms >= 0 && prompts.burst_window_ms <= kMaxBurstWindowMs)) {
    return Wrong("burst_window", "0 to 1h", absl::FormatDuration(absl::Milliseconds(prompts.burst_window_ms)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSimulation(const Profile& profile, const SimulatedCluster& cluster, const SimulatedLoad& load) {
  if (cluster.num_verifiers < 1 || cluster.num_verifiers > kMaxVerifiers) {
    return Wrong("verifiers", absl::StrCat("1 to ", kMaxVerifiers), cluster.num_verifiers);
  }
  if (!cluster.num_replicas.empty() && cluster.num_replicas.size() != profile.proposers.size()) {
    return Wrong("replicas", absl::StrCat("a number for each of ", profile.proposers.size(), " proposers"),
                 cluster.num_replicas.size());
  }
  for (const int32_t num : cluster.num_replicas) {
    if (num < 1 || num > kMaxVerifiers) return Wrong("replicas", absl::StrCat("1 to ", kMaxVerifiers), num);
  }
  if (cluster.max_running < 1 || cluster.max_running > 4096)
    return Wrong("max_running", "1 to 4096", cluster.max_running);
  if (cluster.max_queued < 0) return Wrong("max_queued", "at least 0", cluster.max_queued);
  FT_RETURN_IF_ERROR(CheckPrompts(cluster.prompts, cluster.max_running));
  if (!(load.rate >= 0 && load.rate <= 1e7)) return Wrong("rate", "0 to 1e7 requests per second", load.rate);
  if (load.num_clients < 0 || load.num_clients > 10'000'000) return Wrong("clients", "0 to 1e7", load.num_clients);
  if ((load.rate > 0) == (load.num_clients > 0)) {
    return absl::InvalidArgumentError("expected either a rate or a number of clients");
  }
  if (!(load.seconds >= 1 && load.seconds <= 86'400)) return Wrong("seconds", "1 to 86400", load.seconds);
  return absl::OkStatus();
}

SimulationResult Simulate(const Profile& profile, const SimulatedCluster& cluster, const SimulatedLoad& load) {
  return Simulation(profile, cluster, load).Run();
}

}  // namespace foretoken::client
