// SPDX-License-Identifier: Apache-2.0
// The times and counts of one Generate call. They feed the metrics and, at debug level, one line of the log.
//
//   CallRecord record(&metrics);           // when the call arrives
//   record.Submit(request);
//   record.Observe(output);                // every output of the engine
//   record.End(absl::OkStatus());          // once
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "verifier_service/api/service_metrics.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

class CallRecord {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CallRecord(CallMetrics* metrics) : metrics_(metrics) {}

  void Submit(const GenerationRequest& request);
  void Observe(const SampleOutput& output);
  void End(const absl::Status& status);

  Clock::time_point arrival() const { return arrival_; }
  // One line for the log. Names are escaped, because clients choose them.
  std::string ToLine(const absl::Status& status) const;

 private:
  void LeaveQueue(Clock::time_point now);

  CallMetrics* const metrics_;
  const Clock::time_point arrival_ = Clock::now();
  bool is_submitted_ = false;
  std::string request_id_;
  std::string tenant_;
  std::vector<std::optional<Clock::time_point>> last_tokens_;  // [samples]
  std::optional<double> queue_seconds_;  // from arrival until the first sample ran or the call ended
  std::optional<double> first_token_seconds_;
  int64_t num_prompt_tokens_ = 0;
  uint64_t num_tokens_ = 0;
  uint64_t num_accepted_ = 0;   // guessed tokens among num_tokens_
  uint64_t num_steps_ = 0;      // sum over ended samples
  std::string finish_reasons_;  // of all samples, in the order in which they ended
};

}  // namespace foretoken::verifier
