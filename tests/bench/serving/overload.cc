// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
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

constexpr int kMaxRunning = 16;
constexpr int kMaxQueued = 16;
// Of outputs, in tokens. They differ, so that a batch does not end at once.
constexpr int kOverloadLengths[] = {24, 32, 40, 16, 48};
constexpr double kOverload = 4;
constexpr double kMiB = 1 << 20;

// What a client of gRPC sets to retry refusals. gRPC waits as long as the server says.
constexpr char kRetryConfig[] = R"({"methodConfig": [{
  "name": [{"service": "foretoken.v1.GenerationService"}],
  "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
                  "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]})";

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerationService;
using Calls = std::vector<OpenCall>;

struct Durations {
  absl::Duration closed, normal, overload, retries;
  absl::Duration warm_up;  // the beginning of every loop, which does not count
};

Durations DurationsOf(const Setup& setup) {
  if (setup.options().is_short) {
    return {.closed = absl::Seconds(8),
            .normal = absl::Seconds(12),
            .overload = absl::Seconds(30),
            .retries = absl::Seconds(15),
            .warm_up = absl::Seconds(3)};
  }
  return {.closed = absl::Seconds(30),
          .normal = absl::Seconds(60),
          .overload = absl::Minutes(3),
          .retries = absl::Minutes(1),
          .warm_up = absl::Seconds(5)};
}

std::unique_ptr<GenerationService::Stub> Connect(const std::string& address, const char* service_config = nullptr) {
  grpc::ChannelArguments arguments;
  if (service_config != nullptr) arguments.SetServiceConfigJSON(service_config);
  return GenerationService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

std::vector<GenerateRequest> RequestsOf(const Setup& setup) {
  std::vector<std::string> prompts;
  for (size_t i = 0; i < 60; ++i) prompts.push_back(setup.prompts()[i % setup.prompts().size()]);
  std::vector<GenerateRequest> requests = MakeRequests(prompts, /*temperature=*/0.8, /*max_tokens=*/1);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].set_truncate_prompt_tokens(kPromptTokens);
    requests[i].mutable_stopping()->set_max_tokens(kOverloadLengths[i % std::size(kOverloadLengths)]);
    *requests[i].mutable_speculation() = SpeculationOff();
  }
  return requests;
}

bool IsOk(const OpenCall& call) { return call.code == grpc::StatusCode::OK; }
bool IsRefused(const OpenCall& call) { return call.reason == "QUEUE_FULL"; }
bool IsTooShort(const OpenCall& call) { return call.reason == "DEADLINE_TOO_SHORT"; }
bool IsLate(const OpenCall& call) { return call.code == grpc::StatusCode::DEADLINE_EXCEEDED; }

// Of the calls that have this property, the time from the beginning of the call to `end`.
std::vector<double> Milliseconds(const Calls& calls, bool (*has_property)(const OpenCall&),
                                 absl::Duration OpenCall::*end) {
  std::vector<double> values;
  for (const OpenCall& call : calls) {
    if (has_property(call)) values.push_back(absl::ToDoubleMilliseconds(call.*end - call.began));
  }
  if (values.empty()) values.push_back(0);
  return values;
}

// The tokens per second of calls that ended with OK after the warm-up and before the end of the loop.
double CompletedRate(const Calls& calls, absl::Duration warm_up, absl::Duration duration) {
  double num_tokens = 0;
  for (const OpenCall& call : calls) {
    if (IsOk(call) && call.ended >= warm_up && call.ended < duration) num_tokens += call.num_tokens;
  }
  return num_tokens / absl::ToDoubleSeconds(duration - warm_up);
}

double Percent(const Calls& calls, bool (*has_property)(const OpenCall&)) {
  return 100.0 * static_cast<double>(std::ranges::count_if(calls, has_property)) / static_cast<double>(calls.size());
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Runs the open loop, and reports what holds for every rate.
class Meter {
 public:
  Meter(const Setup& setup, Findings* findings)
      : requests_(RequestsOf(setup)), durations_(DurationsOf(setup)), findings_(*findings) {}

  const std::vector<GenerateRequest>& requests() const { return requests_; }
  const Durations& durations() const { return durations_; }

  // With as many clients as samples run and wait at a time.
  absl::StatusOr<double> Capacity(const std::string& address) const {
    return ClosedLoopRate(
        address, requests_,
        {.num_clients = kMaxRunning + kMaxQueued / 2, .warm_up = durations_.warm_up, .duration = durations_.closed});
  }

  Calls Run(const std::string& what, GenerationService::Stub& stub, const OpenLoopOptions& options) {
    const double cpu_before = CpuSeconds();
    const absl::Time began = absl::Now();
    Calls calls = RunOpenLoop(stub, requests_, options);
    const double cpu_part = (CpuSeconds() - cpu_before) / absl::ToDoubleSeconds(absl::Now() - began);
    Add(absl::StrCat(what, ", offered"), options.calls_per_second, "requests/s");
    Add("  completed", CompletedRate(calls, durations_.warm_up, options.duration), "tokens/s");
    Add("  refused", Percent(calls, IsRefused), "%");
    std::vector<double> lags;
    for (const OpenCall& call : calls) lags.push_back(absl::ToDoubleMilliseconds(call.began - call.planned));
    AddAtMost("  lag of the load generator, p99", Quantile(lags, 0.99), "ms", 20);
    Add("  the load generator's part of one core", 100 * cpu_part, "%");
    Add("  time to first token of accepted requests, p50",
        Quantile(Milliseconds(calls, IsOk, &OpenCall::first_token), 0.5), "ms");
    Add("    p99", Quantile(Milliseconds(calls, IsOk, &OpenCall::first_token), 0.99), "ms");
    if (options.deadline != absl::InfiniteDuration()) {
      Add("  refused for their deadlines", Percent(calls, IsTooShort), "%");
      Add("  ended by their deadlines", Percent(calls, IsLate), "%");
    }
    const auto ends_otherwise = [](const OpenCall& call) {
      return !IsOk(call) && !IsRefused(call) && !IsTooShort(call) && !IsLate(call);
    };
    AddAtMost("  calls with any other end", Percent(calls, ends_otherwise), "%", 0);
    return calls;
  }

  void Add(const std::string& what, double value, const std::string& unit) {
    findings_.Add({.what = what, .value = value, .unit = unit});
  }
  void AddAtMost(const std::string& what, double value, const std::string& unit, double at_most) {
    findings_.Add({.what = what, .value = value, .unit = unit, .at_most = at_most});
  }
  void AddAtLeast(const std::string& what, double value, const std::string& unit, double at_least) {
    findings_.Add({.what = what, .value = value, .unit = unit, .at_least = at_least});
  }

 private:
  const std::vector<GenerateRequest> requests_;
  const Durations durations_;
  Findings& findings_;
};

// The peaks of the verifier's memory in the second and in the last third of a loop.
class PeaksOfThirds {
 public:
  PeaksOfThirds(testing::ChildProcess& process, absl::Duration duration) : process_(process), duration_(duration) {}

  void Look(absl::Duration now) {
    while (num_thirds_ < 2 && now >= (num_thirds_ + 1) * duration_ / 3) {
      peaks_[num_thirds_++] = process_.PeakMemoryBytes();
      process_.ForgetPeakMemory();
    }
  }
  double first_mib() const { return peaks_[0] / kMiB; }
  double growth_mib() const { return static_cast<double>(process_.PeakMemoryBytes() - peaks_[1]) / kMiB; }

 private:
  testing::ChildProcess& process_;
  const absl::Duration duration_;
  int num_thirds_ = 0;
  int64_t peaks_[2] = {};
};

void ReportRefusals(const Calls& calls, Meter& meter) {
  const std::vector<double> refusals = Milliseconds(calls, IsRefused, &OpenCall::ended);
  meter.Add("  refusal seen by the client, p50", Quantile(refusals, 0.5), "ms");
  meter.AddAtMost("    p99", Quantile(refusals, 0.99), "ms", 10);
  const auto has_no_pushback = [](const OpenCall& call) { return IsRefused(call) && call.pushback != "1000"; };
  meter.AddAtMost("  refusals without a pushback of 1000 ms", Percent(calls, has_no_pushback), "%", 0);
}

// Of the verifier's own clock, from a call's arrival to the status that it hands to gRPC.
void ReportRefusalsOfTheServer(const testing::MetricsPage& page, Meter& meter) {
  const auto up_to = [&](const char* seconds) {
    return page.at(absl::StrCat("foretoken_refusal_seconds_bucket{le=\"", seconds, "\"}"));
  };
  const double num = page.at("foretoken_refusal_seconds_count");
  meter.Add("  refusal at the server, mean", 1e3 * page.at("foretoken_refusal_seconds_sum") / num, "ms");
  meter.AddAtLeast("    within 5 ms", 100 * up_to("0.005") / num, "%", 99);
}

// At 4x, with a queue that is longer than the deadlines: all calls at its end would wait in vain.
void MeasureDeadlines(const std::string& label, std::vector<std::string> flags, double capacity, double completed_at_1x,
                      Meter& meter) {
  flags.push_back("--max_queued_requests=256");
  testing::ServiceProcess verifier("foretoken_verifier", flags);
  const auto stub = Connect(verifier.address());
  const absl::Duration deadline = absl::Seconds(2 * kMaxRunning / capacity);  // twice the time of an output at 1x
  const Calls calls =
      meter.Run(absl::StrCat(label, ", 4x with a long queue and deadlines of two outputs' times"), *stub,
                {.calls_per_second = kOverload * capacity,
                 .duration = meter.durations().retries,
                 .seed = 5,
                 .deadline = deadline});
  meter.AddAtLeast("  completed in time against the mean of both 1x",
                   CompletedRate(calls, meter.durations().warm_up, meter.durations().retries) / completed_at_1x, "x",
                   0.4);
}

absl::Status Measure(const std::string& label, const std::string& model, Setup& setup, Findings* findings) {
  std::vector<std::string> flags = setup.VerifierFlags();
  flags.insert(flags.end(), {absl::StrCat("--model=", model), absl::StrCat("--max_running_samples=", kMaxRunning)});
  const std::vector<std::string> flags_without_queue = flags;
  flags.push_back(absl::StrCat("--max_queued_requests=", kMaxQueued));
  testing::ServiceProcess verifier("foretoken_verifier", flags);
  const auto stub = Connect(verifier.address());
  Meter meter(setup, findings);
  const Durations& durations = meter.durations();
  FT_ASSIGN_OR_RETURN(const double capacity, meter.Capacity(verifier.address()));
  meter.Add(absl::StrCat(label, ", a closed loop of 24 clients: 1x"), capacity, "requests/s");

  const auto normal = [&](const std::string& when, uint64_t seed) {
    const Calls calls = meter.Run(absl::StrCat(label, ", 1x ", when), *stub,
                                  {.calls_per_second = capacity, .duration = durations.normal, .seed = seed});
    return CompletedRate(calls, durations.warm_up, durations.normal);
  };
  const double before = normal("before", 1);
  PeaksOfThirds memory(verifier.process(), durations.overload);
  const Calls calls = meter.Run(absl::StrCat(label, ", 4x"), *stub,
                                {.calls_per_second = kOverload * capacity,
                                 .duration = durations.overload,
                                 .seed = 2,
                                 .on_time = [&](absl::Duration now) { memory.Look(now); }});
  ReportRefusals(calls, meter);
  ReportRefusalsOfTheServer(verifier.Metrics(), meter);
  meter.Add("  memory of the verifier after the first third", memory.first_mib(), "MiB");
  meter.AddAtMost("    growth of its peak from the second third to the last", memory.growth_mib(), "MiB", 2);
  const double after = normal("after", 3);
  meter.AddAtLeast("  completed at 4x against the mean of both 1x",
                   CompletedRate(calls, durations.warm_up, durations.overload) / ((before + after) / 2), "x", 0.95);

  const auto retrying = Connect(verifier.address(), kRetryConfig);
  meter.Run(absl::StrCat(label, ", 4x with gRPC's retries"), *retrying,
            {.calls_per_second = kOverload * capacity, .duration = durations.retries, .seed = 4});
  MeasureDeadlines(label, flags_without_queue, capacity, (before + after) / 2, meter);
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureOverload(Setup& setup, Findings* findings) {
  FT_ASSIGN_OR_RETURN(const std::string costly, setup.CostlyDirectory());
  FT_RETURN_IF_ERROR(Measure("costly target", costly, setup, findings));
  return Measure("demo", testing::SourcePath("deploy/demo/target"), setup, findings);
}

}  // namespace foretoken::bench
