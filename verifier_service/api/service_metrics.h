// SPDX-License-Identifier: Apache-2.0
// The metrics for Prometheus: the engine's counters, read at every scrape, and the latencies of calls.
//
// Units: seconds, tokens. Threads: any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "verifier_service/api/unread_outputs.h"
#include "verifier_service/engine/engine.h"
#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {

// The parts of a sample's time, in seconds. A part that was not reached is unset.
struct SampleTimes {
  std::optional<double> prompt;  // from the end of the queue to the first token
  std::optional<double> decode;  // from the first token to the last one; set if `prompt` is
};

// Latencies and counts of calls.
class CallMetrics {
 public:
  // The registry must outlive it.
  explicit CallMetrics(prometheus::Registry& registry);

  void ObserveFirstToken(double seconds) { first_token_.Observe(seconds); }
  // `num_tokens` tokens came together, `seconds` after the previous tokens.
  void ObserveTokens(double seconds, size_t num_tokens);
  // From a request's arrival until its first sample ran, or until its call ended without a run.
  void ObserveQueueWait(double seconds) { queue_wait_.Observe(seconds); }
  // From a request's arrival to the end of its call.
  void ObserveRequest(double seconds) { request_.Observe(seconds); }
  // From a request's arrival to its error, if the engine never had it.
  void ObserveRefusal(double seconds) { refusal_.Observe(seconds); }
  // The parameters of an accepted request.
  void ObserveParameters(const GenerationRequest& request);
  // A sample that has ended.
  void ObserveSample(const SampleTimes& times, const SampleCompletion& completion);
  // `rpc` is the method's name, as in the protocol.
  void CountCall(absl::string_view rpc, const absl::Status& status);

 private:
  prometheus::Histogram& first_token_;
  prometheus::Histogram& inter_token_;
  prometheus::Histogram& output_gap_;
  prometheus::Histogram& queue_wait_;
  prometheus::Histogram& request_;
  prometheus::Histogram& refusal_;
  prometheus::Histogram& prompt_;
  prometheus::Histogram& decode_;
  prometheus::Histogram& inference_;
  prometheus::Histogram& output_token_;
  prometheus::Histogram& prompt_tokens_;
  prometheus::Histogram& output_tokens_;
  prometheus::Histogram& num_samples_;
  prometheus::Histogram& max_tokens_;
  prometheus::Family<prometheus::Counter>& samples_;
  prometheus::Family<prometheus::Counter>& calls_;
  prometheus::Family<prometheus::Counter>& refusals_;
};

// The counters and gauges of the engine, of the proposer pool and of unread output, at the time of a scrape.
class EngineCollector : public prometheus::Collectable {
 public:
  // The arguments outlive the collector.
  EngineCollector(const Engine& engine, const ProposerPool& pool, const UnreadOutputs& unread)
      : engine_(engine), pool_(pool), unread_(unread) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Engine& engine_;
  const ProposerPool& pool_;
  const UnreadOutputs& unread_;
};

}  // namespace foretoken::verifier
