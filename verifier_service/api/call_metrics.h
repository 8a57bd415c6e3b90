// SPDX-License-Identifier: Apache-2.0
// The metrics of calls for Prometheus: latencies, sizes, results and refusals. Where a function takes a `trace_id`, it
// is that of the call's recorded trace, or empty.
//
// Units: seconds, tokens. Threads: any.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/telemetry/metrics.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

// The parts of a sample's time, in seconds. A part that was not reached is unset.
struct SampleTimes {
  std::optional<double> prompt;  // from the end of the queue to the first token
  std::optional<double> decode;  // from the first token to the last one; set if `prompt` is
};

// The method that a call names.
struct RpcName {
  absl::string_view rpc;       // "Generate"
  absl::string_view api = {};  // "vllm" for that contract; empty: our own protocol
};

// Latencies and counts of calls.
class CallMetrics {
 public:
  // `metrics` outlive it.
  explicit CallMetrics(telemetry::Metrics& metrics);

  void ObserveFirstToken(double seconds, absl::string_view trace_id) { first_token_.Observe(seconds, trace_id); }
  // `num_tokens` tokens came together, `seconds` after the previous tokens.
  void ObserveTokens(double seconds, size_t num_tokens, absl::string_view trace_id);
  // From a request's arrival until its first sample began to run, or until its call ended without a run.
  void ObserveQueueWait(double seconds, absl::string_view trace_id) { queue_wait_.Observe(seconds, trace_id); }
  // From a request's arrival to the end of its call.
  void ObserveRequest(double seconds, absl::string_view trace_id) { request_.Observe(seconds, trace_id); }
  // From a request's arrival to its error, if the engine never had it.
  void ObserveRefusal(double seconds, absl::string_view trace_id) { refusal_.Observe(seconds, trace_id); }
  // The parameters of a request that the engine had.
  void ObserveParameters(int32_t num_samples, int32_t max_tokens);
  // A sample that has ended.
  void ObserveSample(const SampleTimes& times, const SampleCompletion& completion, absl::string_view trace_id);
  // Samples that have not ended when their call ends with this error.
  void CountUnfinished(size_t num_samples, const absl::Status& error);
  // Shows the method with no calls, and Generate with no refusals. A rate needs a first value.
  void Announce(const RpcName& rpc);
  void CountCall(const RpcName& rpc, const absl::Status& status);

 private:
  telemetry::TracedHistogram& first_token_;
  telemetry::TracedHistogram& inter_token_;
  telemetry::TracedHistogram& output_gap_;
  telemetry::TracedHistogram& queue_wait_;
  telemetry::TracedHistogram& request_;
  telemetry::TracedHistogram& refusal_;
  telemetry::TracedHistogram& prompt_;
  telemetry::TracedHistogram& decode_;
  telemetry::TracedHistogram& inference_;
  telemetry::TracedHistogram& output_token_;
  prometheus::Histogram& prompt_tokens_;
  prometheus::Histogram& uncached_prompt_tokens_;
  prometheus::Histogram& output_tokens_;
  prometheus::Histogram& num_samples_;
  prometheus::Histogram& max_tokens_;
  prometheus::Family<prometheus::Counter>& samples_;
  prometheus::Family<prometheus::Counter>& calls_;
  prometheus::Family<prometheus::Counter>& refusals_;
};

}  // namespace foretoken::verifier
