// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/span_exporter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/steady_clock.h"
#include "common/tracing/otlp.h"
#include "spdlog/spdlog.h"

namespace foretoken::tracing {
namespace {

using Outcome = SendResult::Outcome;

constexpr absl::Duration kMaxPause = absl::Seconds(5);
constexpr double kPauseGrowth = 1.5;
constexpr double kJitter = 0.2;           // a pause is up to this part shorter or longer
constexpr size_t kMaxMessageBytes = 200;  // of a collector, in the log

// How many encoded spans fit into a request, at least one.
size_t NumThatFit(std::span<const std::string> spans) {
  size_t num = 0, num_bytes = 0;
  for (; num < spans.size(); ++num) {
    num_bytes += spans[num].size();
    if (num > 0 && num_bytes > SpanExporter::kMaxRequestBytes) break;
  }
  return num;
}

SendResult NoTimeLeft() { return {.outcome = Outcome::kRefused, .message = "there was no time left"}; }

}  // namespace

ExporterMetrics::ExporterMetrics(telemetry::Metrics& metrics)
    : exported(metrics.AddCounter("foretoken_trace_spans_exported_total", "Spans that the trace collector took.")),
      queue_full(
          metrics.AddCounter("foretoken_trace_spans_dropped_total", "Spans dropped.", {{"reason", "queue_full"}})),
      undelivered(
          metrics.AddCounter("foretoken_trace_spans_dropped_total", "Spans dropped.", {{"reason", "undelivered"}})),
      queued(metrics.AddGauge("foretoken_trace_spans_queued", "Spans that wait to be sent.")) {}

SpanExporter::SpanExporter(Settings settings, SendBatch send, std::function<uint64_t()> random_bits,
                           telemetry::Metrics& metrics)
    : settings_(std::move(settings)),
      send_(std::move(send)),
      random_bits_(std::move(random_bits)),
      metrics_(metrics),
      thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard lock(mutex_);
    flush_deadline_ = SteadyNow() + kMaxFlush;
    changed_.notify_one();
  }
  thread_.join();
}

void SpanExporter::Add(Span span) {
  const std::lock_guard lock(mutex_);
  if (queue_.size() >= settings_.batch.max_queued_spans) {
    metrics_.queue_full.Increment();
    return;
  }
  queue_.push_back(std::move(span));
  metrics_.queued.Increment();
  // The thread waits for the first span, and then for a whole batch.
  if (queue_.size() == 1 || queue_.size() == settings_.batch.max_batch_spans) changed_.notify_one();
}

void SpanExporter::Run() {
  while (true) {
    const std::vector<Span> batch = TakeBatch();
    if (batch.empty()) return;
    Export(batch);
  }
}

// Empty: the exporter ends, and nothing is left.
std::vector<Span> SpanExporter::TakeBatch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !queue_.empty() || flush_deadline_; });
  WaitAtMost(settings_.batch.delay, changed_, lock,
             [this] { return queue_.size() >= settings_.batch.max_batch_spans || flush_deadline_; });
  const size_t num_taken = std::min(queue_.size(), settings_.batch.max_batch_spans);
  const auto end = queue_.begin() + static_cast<ptrdiff_t>(num_taken);
  std::vector<Span> batch(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
  queue_.erase(queue_.begin(), end);
  metrics_.queued.Decrement(static_cast<double>(num_taken));
  return batch;
}

void SpanExporter::Export(std::span<const Span> batch) {
  if (SteadyNow() >= Deadline()) return Account(NoTimeLeft(), batch.size());  // before it encodes what nobody gets
  std::vector<std::string> encoded;
  encoded.reserve(batch.size());
  for (const Span& span : batch) encoded.push_back(EncodeSpan(span, settings_.limits));
  for (std::span<std::string> rest = encoded; !rest.empty();) {
    const size_t num_spans = NumThatFit(rest);
    Account(SendWithRetries(MakeRequest(rest.first(num_spans), settings_.resource)), num_spans);
    rest = rest.subspan(num_spans);
  }
}

// One line when a trouble begins: a collector that is down for a day would otherwise fill the log. One whose troubles
// begin and end all day would fill it too, so the number of lines has a limit.
void SpanExporter::Account(const SendResult& result, size_t num_spans) {
  const bool is_delivered = result.outcome == Outcome::kDelivered;
  const uint64_t num_lost = is_delivered ? std::min<uint64_t>(result.num_rejected_spans, num_spans) : num_spans;
  const std::string message = base::Quoted(result.message, kMaxMessageBytes);
  const auto log = [this](spdlog::level::level_enum level, std::string line) {
    if (const auto passed = lines_.Pass(std::move(line), SteadyNow())) spdlog::log(level, "{}", *passed);
  };
  if (num_lost > 0 && !std::exchange(has_warned_, true)) {
    log(spdlog::level::warn,
        absl::StrCat("the collector of traces did not take ", num_lost, " of ", num_spans, " spans: ", message));
  }
  if (num_lost == 0 && std::exchange(has_warned_, false)) {
    log(spdlog::level::info, "the collector of traces takes spans again");
  }
  // A collector may take all spans and still warn of something.
  const bool has_advice = num_lost == 0 && !result.message.empty();
  if (has_advice && !has_passed_on_) {
    log(spdlog::level::warn, absl::StrCat("the collector of traces takes spans and says: ", message));
  }
  has_passed_on_ = has_advice;
  metrics_.exported.Increment(static_cast<double>(num_spans - num_lost));
  metrics_.undelivered.Increment(static_cast<double>(num_lost));
}

SendResult SpanExporter::SendWithRetries(const otlp::ExportTraceServiceRequest& request) {
  const absl::Time give_up = SteadyNow() + settings_.batch.export_timeout;
  absl::Duration pause = settings_.batch.first_pause;
  SendResult result = NoTimeLeft();
  for (int num_tries = 1;; ++num_tries) {
    const absl::Time deadline = Deadline();
    const bool was_ending = deadline != absl::InfiniteFuture();
    const absl::Duration left = std::min(give_up, deadline) - SteadyNow();
    if (left <= absl::ZeroDuration()) return result;
    result = send_(request, std::min(left, settings_.endpoint.timeout), [this] { return SteadyNow() >= Deadline(); });
    if (result.outcome != Outcome::kTryAgain || num_tries == kMaxTries) return result;
    const double unit = static_cast<double>(random_bits_() >> 11) * 0x1p-53;  // [0, 1)
    const absl::Duration own_wait = pause * (1 + kJitter * (2 * unit - 1));
    const absl::Time next_try = SteadyNow() + std::max(own_wait, result.try_again_after.value_or(own_wait));
    // If this batch has no time for it, it is lost, and the next batch does not come at once in its place.
    const bool ends = !Pause(std::min(next_try, give_up) - SteadyNow());
    const bool has_last_try =
        !was_ending && result.try_again_after.value_or(absl::ZeroDuration()) <= absl::ZeroDuration();
    if (ends ? !has_last_try : next_try >= give_up) return result;
    pause = std::min(kMaxPause, pause * kPauseGrowth);
  }
}

bool SpanExporter::Pause(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  return !WaitAtMost(duration, changed_, lock, [this] { return flush_deadline_.has_value(); });
}

absl::Time SpanExporter::Deadline() const {
  const std::lock_guard lock(mutex_);
  return flush_deadline_.value_or(absl::InfiniteFuture());
}

}  // namespace foretoken::tracing
