// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cancellation.h"
#include "client/load.h"
#include "common/base/status_macros.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/serving/rounds.h"

namespace foretoken::bench {
namespace {

using foretoken::v1::GenerateRequest;

constexpr int kSpikeClients = 64;
constexpr absl::Duration kGrace = absl::Seconds(2);

// A client that sends request after request until the end of the scope.
class EndlessClient {
 public:
  EndlessClient(ServiceProcesses& service, std::vector<GenerateRequest> requests)
      : requests_(std::move(requests)), thread_([this, &service] {
          for (size_t i = 0; !cancellation_.cancelled(); ++i) {
            service.client().Generate(requests_[i % requests_.size()], &cancellation_).IgnoreError();
          }
        }) {}
  ~EndlessClient() { cancellation_.Cancel(); }

 private:
  const std::vector<GenerateRequest> requests_;
  client::Cancellation cancellation_;
  std::jthread thread_;
};

struct Recovery {
  Setup& setup;
  ServiceProcesses& service;
  std::vector<std::string> prompts;
};

std::vector<GenerateRequest> AutoRequests(const std::vector<std::string>& prompts, const std::string& tenant,
                                          int max_tokens) {
  std::vector<GenerateRequest> requests = MakeRequests(prompts, /*temperature=*/0, max_tokens);
  for (GenerateRequest& request : requests) {
    request.set_tenant(tenant);
    *request.mutable_speculation() = SpeculationBy({"suffix", "draft"});
  }
  return requests;
}

absl::Status RunSpike(Recovery& recovery, const std::string& tenant) {
  std::vector<std::string> prompts;
  for (int i = 0; i < kSpikeClients; ++i) prompts.push_back(recovery.prompts[i % recovery.prompts.size()]);
  const int max_tokens = recovery.setup.options().is_short ? 12 : 24;
  std::vector<GenerateRequest> requests = AutoRequests(prompts, tenant, max_tokens);
  for (GenerateRequest& request : requests) request.set_truncate_prompt_tokens(16);
  const client::LoadResult load = client::RunLoad(recovery.service.client(), requests, {.num_clients = kSpikeClients},
                                                  [](const client::TimedGeneration&) {});
  for (const client::TimedGeneration& timed : load.generations) FT_RETURN_IF_ERROR(timed.status);
  return absl::OkStatus();
}

// One client's turn after kGrace, with or without a spike of many clients before it.
absl::StatusOr<Turn> TurnAfter(Recovery& recovery, bool has_spike, int round) {
  const std::string label = absl::StrCat("recovery ", round, has_spike ? ", spike" : ", calm");
  {
    const EndlessClient client(recovery.service, AutoRequests(recovery.prompts, label, 256));
    if (has_spike) FT_RETURN_IF_ERROR(RunSpike(recovery, label + ", others"));
    absl::SleepFor(kGrace);
  }
  const std::vector<Way> way = {
      {.name = "auto", .service = &recovery.service, .speculation = SpeculationBy({"suffix", "draft"})}};
  const auto requests = MakeRequests({recovery.prompts[round % recovery.prompts.size()]}, /*temperature=*/0,
                                     recovery.setup.options().max_tokens);
  FT_ASSIGN_OR_RETURN(const Rounds rounds, RunRounds(way, requests, {.label = label}));
  return rounds.by_way[0][0];
}

}  // namespace

absl::Status MeasureRecovery(Setup& setup, Findings* findings) {
  FT_ASSIGN_OR_RETURN(ServiceProcesses* const service, setup.Costly());
  Recovery recovery{.setup = setup, .service = *service, .prompts = setup.prompts()};
  std::vector<Turn> calm, after_spike;
  for (int round = 0; round < (setup.options().is_short ? 2 : 6); ++round) {
    for (const bool has_spike : {round % 2 == 0, round % 2 != 0}) {
      FT_ASSIGN_OR_RETURN(const Turn turn, TurnAfter(recovery, has_spike, round));
      (has_spike ? after_spike : calm).push_back(turn);
    }
  }
  findings->Add({.what = "one client, calm: nodes a step", .value = NodesPerStep(Sum(calm)), .unit = "nodes"});
  Finding nodes = MedianFinding("  2 s after a spike of 64 clients",
                                client::MedianInterval(Ratios(after_spike, calm, NodesPerStep)), "x nodes");
  nodes.at_least = 0.9;
  findings->Add(nodes);
  Finding tokens = MedianFinding("  2 s after a spike of 64 clients",
                                 client::MedianInterval(Ratios(after_spike, calm, TokensPerStep)), "x tokens/step");
  tokens.at_least = 0.9;
  findings->Add(tokens);
  return absl::OkStatus();
}

}  // namespace foretoken::bench
