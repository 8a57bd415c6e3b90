// SPDX-License-Identifier: Apache-2.0
// The times and counts of one Generate call. They feed the metrics, the trace and one event of the log: "request ended"
// or, if the engine never had the request, "request refused". The event of a request that the server broke is a
// warning, and LineLimits bounds such warnings. Every other event has the debug level.
//
//   CallRecord record({.metrics = &metrics, .fault_lines = &fault_lines},  // when the call arrives
//                     CallTrace(tracer, call));
//   record.Submit(request, "llama");
//   record.Withdraw();                     // only if the engine then refuses the request
//   record.Observe(output);                // every output of the engine
//   record.End(absl::OkStatus());          // once
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/telemetry/line_limit.h"
#include "spdlog/common.h"
#include "verifier_service/api/call_metrics.h"
#include "verifier_service/api/call_trace.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

// What all records share. It outlives them.
struct CallRecordSinks {
  CallMetrics* metrics = nullptr;
  telemetry::LineLimits* fault_lines = nullptr;
};

class CallRecord {
 public:
  // `rpc` outlives the record.
  CallRecord(const CallRecordSinks& sinks, CallTrace trace, const RpcName& rpc = {.rpc = "Generate"});

  // What the call says of the request so far, unchecked.
  void Name(const std::string& request_id, const std::string& tenant);
  // The request goes to the engine, whose outputs may come at once.
  void Submit(const GenerationRequest& request, absl::string_view model);
  // The engine has not taken the submitted request, so the call ends as a refused one.
  void Withdraw();
  void Observe(const SampleOutput& output);
  void End(const absl::Status& status);

  absl::Time arrival() const { return arrival_; }  // of SteadyNow

 private:
  // When a sample began to run, and when its first and its newest tokens were known, on the engine's clock.
  struct Sample {
    std::optional<absl::Time> began, first_tokens, last_tokens;
    bool has_ended = false;  // its completion has come
  };

  double SecondsUntil(absl::Time time) const { return absl::ToDoubleSeconds(time - arrival_); }
  void LeaveQueue(absl::Time time);
  void ObserveTokens(const SampleOutput& output);
  void CountSample(const Sample& sample, const SampleCompletion& completion);
  void Log(const absl::Status& status) const;
  void LogEnd(spdlog::level::level_enum level, absl::string_view event, const absl::Status& status) const;
  void LogRefusal(spdlog::level::level_enum level, absl::string_view event, const absl::Status& status) const;

  CallMetrics* const metrics_;
  telemetry::LineLimits* const fault_lines_;
  CallTrace trace_;
  const RpcName rpc_;
  const std::string trace_id_;           // empty without a trace
  const std::string recorded_trace_id_;  // empty if the trace is not recorded
  const absl::Time arrival_ = SteadyNow();
  bool is_submitted_ = false;
  std::string request_id_;
  std::string tenant_;
  std::vector<Sample> samples_;
  std::optional<double> queue_seconds_;  // from arrival until the first sample began to run or the call ended
  std::optional<double> first_token_seconds_;
  int64_t num_prompt_tokens_ = 0;
  int32_t max_tokens_ = 0;
  uint64_t num_tokens_ = 0;
  uint64_t num_accepted_ = 0;   // guessed tokens among num_tokens_
  uint64_t num_steps_ = 0;      // that drew tokens, summed over the samples
  std::string finish_reasons_;  // of all samples, in the order in which they ended
};

}  // namespace foretoken::verifier
