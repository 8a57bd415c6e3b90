// SPDX-License-Identifier: Apache-2.0
// Sends ended spans to a collector, in batches and from a thread of its own. Whoever adds a span never waits for the
// network: if the queue is full, the span is dropped and counted.
//
//   FT_ASSIGN_OR_RETURN(SendBatch send, MakeGrpcSender(settings.endpoint));
//   SpanExporter exporter(settings, std::move(send), base::SystemRandomBits, metrics);
//   exporter.Add(std::move(span));
//
// A batch leaves when it is full, or after the delay. Collectors take 4 MiB, so a batch of many bytes leaves in parts.
// While a batch is sent, the next one waits. A batch that the collector cannot take now is sent again, at most four
// times, with growing pauses that vary at random, so that many servers do not come back together. A collector may ask
// for a longer pause, and not for a shorter one. If it asks for more time than the batch has left, the batch is lost
// when its time is over. A batch that the collector refuses is dropped and counted. The destructor sends the queued
// spans, but waits no longer than kMaxFlush. It also cuts the pause of a batch short for one more try, unless the
// collector asked for that pause.
//
// Threads: any may call Add.
// Source: OpenTelemetry specification, "Batching processor" and "OTLP", its rules on retries and partial success.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/telemetry/line_limit.h"
#include "common/telemetry/metrics.h"
#include "common/tracing/settings.h"
#include "common/tracing/span.h"
#include "otlp/traces.pb.h"

namespace foretoken::tracing {

// The end of one try to send a batch.
struct SendResult {
  enum class Outcome {
    kDelivered,
    kTryAgain,  // the collector cannot be reached or is busy
    kRefused,   // another try would end the same way
  };
  Outcome outcome = Outcome::kDelivered;
  std::optional<absl::Duration> try_again_after = std::nullopt;  // as the collector said
  uint64_t num_rejected_spans = 0;                               // of a delivered batch
  std::string message = {};                                      // for the log
};

// True as soon as the process ends and has no time left for a try that is under way.
using MustEnd = std::function<bool()>;

inline constexpr int kMaxResponseBytes = 4 << 20;  // of a collector's answer, inflated; a longer one fails the try

// Makes one try, which takes no longer than `timeout` and ends soon after must_end is true. Only the exporter's thread
// calls it.
using SendBatch = std::function<SendResult(const otlp::ExportTraceServiceRequest& request, absl::Duration timeout,
                                           const MustEnd& must_end)>;

struct ExporterMetrics {
  explicit ExporterMetrics(telemetry::Metrics& metrics);

  prometheus::Counter& exported;     // spans that the collector took
  prometheus::Counter& queue_full;   // spans dropped, because the queue was full
  prometheus::Counter& undelivered;  // spans dropped after the last try, or refused by the collector
  prometheus::Gauge& queued;         // spans that wait now
};

class SpanExporter {
 public:
  static constexpr int kMaxTries = 5;
  static constexpr absl::Duration kMaxFlush = absl::Seconds(3);
  static constexpr size_t kMaxRequestBytes = size_t{2} << 20;  // of spans; only a single one may have more

  // The metrics outlive the exporter.
  SpanExporter(Settings settings, SendBatch send, std::function<uint64_t()> random_bits, telemetry::Metrics& metrics);
  ~SpanExporter();

  void Add(Span span);

 private:
  void Run();
  std::vector<Span> TakeBatch();
  void Export(std::span<const Span> batch);
  void Account(const SendResult& result, size_t num_spans);
  SendResult SendWithRetries(const otlp::ExportTraceServiceRequest& request);
  // Returns false if the exporter ends meanwhile.
  bool Pause(absl::Duration duration);
  absl::Time Deadline() const;  // of SteadyNow

  const Settings settings_;
  const SendBatch send_;
  const std::function<uint64_t()> random_bits_;
  const ExporterMetrics metrics_;

  bool has_warned_ = false;     // that the collector does not take spans now
  bool has_passed_on_ = false;  // what the collector says now of spans that it takes
  telemetry::LineLimit lines_;  // about the collector
  // A std::mutex, because the timed waits of absl::Mutex follow the system's clock. It guards the queue and the
  // deadline.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Span> queue_;
  std::optional<absl::Time> flush_deadline_;  // set: the exporter ends
  std::thread thread_;
};

}  // namespace foretoken::tracing
