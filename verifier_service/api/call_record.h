// SPDX-License-Identifier: Apache-2.0
// The times and counts of one Generate call. They feed the metrics, the trace and, at debug level, one event of
// the log: "request ended" or, if the engine never had the request, "request refused".
//
//   CallRecord record(&metrics, CallTrace(tracer, call));  // when the call arrives
//   record.Submit(request, "llama");
//   record.Observe(output);                // every output of the engine
//   record.End(absl::OkStatus());          // once
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "verifier_service/api/call_trace.h"
#include "verifier_service/api/service_metrics.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

class CallRecord {
 public:
  using Clock = std::chrono::steady_clock;

  // `rpc` outlives the record.
  CallRecord(CallMetrics* metrics, CallTrace trace, const RpcName& rpc = {.rpc = "Generate"});

  // What the call says of the request so far, unchecked.
  void Name(const std::string& request_id, const std::string& tenant);
  void Submit(const GenerationRequest& request, absl::string_view model);
  void Observe(const SampleOutput& output);
  void End(const absl::Status& status);

  Clock::time_point arrival() const { return arrival_; }

 private:
  // When a sample's first tokens and its newest tokens were known.
  struct Sample {
    std::optional<Clock::time_point> first_tokens, last_tokens;
    bool has_ended = false;  // its completion has come
  };

  void LeaveQueue(Clock::time_point now);
  void LogEnd(const absl::Status& status) const;
  static std::string ErrorForLog(const absl::Status& status);
  void LogRefusal(const absl::Status& status) const;
  void CountSample(const Sample& sample, const SampleCompletion& completion);

  CallMetrics* const metrics_;
  CallTrace trace_;
  const RpcName rpc_;
  const std::string trace_id_;           // empty without a trace
  const std::string recorded_trace_id_;  // empty if the trace is not recorded
  const Clock::time_point arrival_ = Clock::now();
  bool is_submitted_ = false;
  std::string request_id_;
  std::string tenant_;
  std::vector<Sample> samples_;
  std::optional<double> queue_seconds_;  // from arrival until the first sample ran or the call ended
  std::optional<double> first_token_seconds_;
  int64_t num_prompt_tokens_ = 0;
  uint64_t num_tokens_ = 0;
  uint64_t num_accepted_ = 0;   // guessed tokens among num_tokens_
  uint64_t num_steps_ = 0;      // sum over ended samples
  std::string finish_reasons_;  // of all samples, in the order in which they ended
};

}  // namespace foretoken::verifier
