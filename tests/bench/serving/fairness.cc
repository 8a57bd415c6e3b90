// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "grpcpp/create_channel.h"
#include "tests/bench/serving/closed_loop.h"
#include "tests/bench/serving/open_loop.h"
#include "tests/bench/serving/parts.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/paths.h"
#include "tests/testing/service_process.h"

namespace foretoken::bench {
namespace {

constexpr int kFairRunning = 16;
constexpr int kFairQueued = 64;
constexpr int kFairLengths[] = {96, 128, 160, 64, 192};  // of outputs, in tokens
constexpr double kFlood = 10;                            // times the capacity
constexpr double kLeastPart = 0.9;                       // of its fair share that a tenant must get

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerationService;

std::vector<GenerateRequest> RequestsOf(const Setup& setup, const std::string& tenant) {
  std::vector<std::string> prompts;
  for (size_t i = 0; i < 60; ++i) prompts.push_back(setup.prompts()[i % setup.prompts().size()]);
  std::vector<GenerateRequest> requests = MakeRequests(prompts, /*temperature=*/0.8, /*max_tokens=*/1);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].set_tenant(tenant);
    requests[i].set_truncate_prompt_tokens(kPromptTokens);
    requests[i].mutable_stopping()->set_max_tokens(kFairLengths[i % std::size(kFairLengths)]);
    *requests[i].mutable_speculation() = SpeculationOff();
  }
  return requests;
}

// What a tenant wanted and got after the warm-up.
struct Served {
  double num_wanted = 0, num_completed = 0;
  double first_token_ms = 0;  // median
};

struct Window {
  absl::Duration warm_up, duration;
};

class TenantLoop {
 public:
  TenantLoop(const std::string& address, std::vector<GenerateRequest> requests, const OpenLoopOptions& options)
      : stub_(GenerationService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        requests_(std::move(requests)),
        thread_([this, options] { calls_ = RunOpenLoop(*stub_, requests_, options); }) {}

  Served Join(const Window& window) {
    thread_.join();
    Served served;
    std::vector<double> first_tokens_ms = {0};
    for (const OpenCall& call : calls_) {
      if (call.planned >= window.warm_up) ++served.num_wanted;
      const bool is_in_time = call.ended >= window.warm_up && call.ended < window.duration;
      if (call.code != grpc::StatusCode::OK || !is_in_time) continue;
      ++served.num_completed;
      first_tokens_ms.push_back(absl::ToDoubleMilliseconds(call.first_token - call.began));
    }
    served.first_token_ms = Quantile(first_tokens_ms, 0.5);
    return served;
  }

 private:
  const std::unique_ptr<GenerationService::Stub> stub_;
  const std::vector<GenerateRequest> requests_;
  std::vector<OpenCall> calls_;
  std::thread thread_;
};

struct Case {
  std::string what;
  std::string tenant;
  double demand = 0;  // times the capacity
  double share = 0;   // of what the server completes, if the tenant wants as much
};

}  // namespace

absl::Status MeasureFairness(Setup& setup, Findings* findings) {
  std::vector<std::string> flags = setup.VerifierFlags();
  flags.insert(flags.end(), {absl::StrCat("--model=", testing::SourcePath("deploy/demo/target")),
                             absl::StrCat("--max_running_samples=", kFairRunning),
                             absl::StrCat("--max_queued_requests=", kFairQueued), "--tenant_weights=heavy=3"});
  testing::ServiceProcess verifier("foretoken_verifier", flags);
  const Window window = {.warm_up = absl::Seconds(5),
                         .duration = setup.options().is_short ? absl::Seconds(30) : absl::Seconds(90)};
  FT_ASSIGN_OR_RETURN(
      const double capacity,
      ClosedLoopRate(verifier.address(), RequestsOf(setup, "alone"),
                     {.num_clients = 2 * kFairRunning, .warm_up = absl::Seconds(3), .duration = absl::Seconds(15)}));
  findings->Add({.what = "one tenant, a closed loop of 32 clients: 1x", .value = capacity, .unit = "requests/s"});
  const Case cases[] = {{.what = "a trickle of 0.25x", .tenant = "trickle", .demand = 0.25, .share = 0.5},
                        {.what = "a tenant that wants 2x", .tenant = "equal", .demand = 2, .share = 0.5},
                        {.what = "a tenant of weight 3 that wants 2x", .tenant = "heavy", .demand = 2, .share = 0.75}};
  for (const Case& load : cases) {
    TenantLoop flood(verifier.address(), RequestsOf(setup, "flood"),
                     {.calls_per_second = kFlood * capacity, .duration = window.duration, .seed = 1});
    TenantLoop other(verifier.address(), RequestsOf(setup, load.tenant),
                     {.calls_per_second = load.demand * capacity, .duration = window.duration, .seed = 2});
    const Served of_flood = flood.Join(window), of_other = other.Join(window);
    const double num_completed = of_flood.num_completed + of_other.num_completed;
    const double fair = std::min(of_other.num_wanted, load.share * num_completed);
    const double seconds = absl::ToDoubleSeconds(window.duration - window.warm_up);
    const std::string what = absl::StrCat(load.what, ", beside a flood of 10x");
    findings->Add(
        {.what = absl::StrCat(what, ": both complete"), .value = num_completed / seconds, .unit = "requests/s"});
    findings->Add({.what = "  its fair share", .value = fair / seconds, .unit = "requests/s"});
    findings->Add({.what = "  it completes", .value = of_other.num_completed / seconds, .unit = "requests/s"});
    findings->Add(
        {.what = "    of its fair share", .value = of_other.num_completed / fair, .unit = "x", .at_least = kLeastPart});
    findings->Add({.what = "  its time to first token, p50", .value = of_other.first_token_ms, .unit = "ms"});
    findings->Add({.what = "  the flood's, p50", .value = of_flood.first_token_ms, .unit = "ms"});
  }
  return absl::OkStatus();
}

}  // namespace foretoken::bench
