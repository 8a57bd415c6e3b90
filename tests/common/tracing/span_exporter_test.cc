// SPDX-License-Identifier: Apache-2.0
// The queue of spans. If this test fails, a slow or dead collector delays a step or fills the memory, or lost spans are
// not counted.
#include "common/tracing/span_exporter.h"

#include "absl/synchronization/notification.h"
#include "common/base/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/captured_log.h"

namespace foretoken::tracing {
namespace {

using ::testing::ElementsAre;
using Outcome = SendResult::Outcome;

Span Named(const std::string& name) { return {.name = name, .begin = absl::Now(), .end = absl::Now()}; }

Span WithText(size_t num_bytes) {
  Span span = Named("a");
  span.attributes = {{"text", std::string(num_bytes, 'x')}};
  return span;
}

// A collector that answers from a script, and an exporter of it.
class SpanExporterTest : public ::testing::Test {
 protected:
  void Start(std::vector<SendResult> script, BatchLimits batch, uint64_t random_bits = 0) {
    script_ = std::move(script);
    exporter_.emplace(
        Settings{.batch = batch},
        [this](const otlp::ExportTraceServiceRequest& request, absl::Duration timeout, const MustEnd& must_end) {
          return Send(request, timeout, must_end);
        },
        [random_bits] { return random_bits; }, metrics_);
  }
  ~SpanExporterTest() override { Unblock(); }

  SendResult Send(const otlp::ExportTraceServiceRequest& request, absl::Duration timeout, const MustEnd& must_end) {
    if (blocks_) may_send_.WaitForNotification();
    while (blocks_until_the_end_ && !must_end()) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_GT(timeout, absl::ZeroDuration());
    absl::MutexLock lock(&mutex_);
    sent_.push_back(request.resource_spans(0).scope_spans(0).spans_size());
    times_.push_back(SteadyNow());
    return sent_.size() <= script_.size() ? script_[sent_.size() - 1] : SendResult();
  }
  void Unblock() {
    if (!may_send_.HasBeenNotified()) may_send_.Notify();
  }
  std::vector<int> sent() {
    absl::MutexLock lock(&mutex_);
    return sent_;
  }
  // Waits for so many tries, and returns the pauses between them.
  std::vector<absl::Duration> Pauses(size_t num_tries) {
    absl::MutexLock lock(&mutex_);
    const auto are_there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return times_.size() >= num_tries; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&are_there), absl::Seconds(60)));
    std::vector<absl::Duration> pauses;
    for (size_t i = 1; i < times_.size(); ++i) pauses.push_back(times_[i] - times_[i - 1]);
    return pauses;
  }
  double Exported() { return ExporterMetrics(metrics_).exported.Value(); }
  double QueueFull() { return ExporterMetrics(metrics_).queue_full.Value(); }
  double Undelivered() { return ExporterMetrics(metrics_).undelivered.Value(); }

  telemetry::Metrics metrics_;
  absl::Mutex mutex_;
  std::vector<int> sent_ ABSL_GUARDED_BY(mutex_);          // spans of each try
  std::vector<absl::Time> times_ ABSL_GUARDED_BY(mutex_);  // of each try
  std::vector<SendResult> script_;
  bool blocks_ = false, blocks_until_the_end_ = false;
  absl::Notification may_send_;
  std::optional<SpanExporter> exporter_;
};

TEST_F(SpanExporterTest, AnEndSendsWhatWaits) {
  Start({}, {.delay = absl::Hours(1)});
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  exporter_.reset();
  EXPECT_THAT(sent(), ElementsAre(2));
  EXPECT_EQ(Exported(), 2);
}

TEST_F(SpanExporterTest, AFullBatchDoesNotWait) {
  Start({}, {.delay = absl::Hours(1), .max_batch_spans = 2});
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  const absl::Time give_up = SteadyNow() + absl::Seconds(20);
  while (sent().empty() && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_THAT(sent(), ElementsAre(2));
}

TEST_F(SpanExporterTest, ABlockedCollectorCostsNobodyTimeAndDropsAreCounted) {
  blocks_ = true;
  Start({}, {.delay = absl::ZeroDuration(), .max_queued_spans = 10, .max_batch_spans = 10});
  const absl::Time begin = SteadyNow();
  for (int i = 0; i < 1000; ++i) exporter_->Add(Named("a"));
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(2));
  Unblock();
  exporter_.reset();
  EXPECT_EQ(Exported() + QueueFull(), 1000);
  EXPECT_GE(QueueFull(), 1000 - 20);  // ten in the queue, ten on their way
  EXPECT_EQ(ExporterMetrics(metrics_).queued.Value(), 0);
}

TEST_F(SpanExporterTest, TriesAgainWhatTheCollectorCannotTakeNow) {
  const SendResult busy = {.outcome = Outcome::kTryAgain};
  Start({busy, busy}, {.delay = absl::Hours(1), .first_pause = absl::Milliseconds(1), .max_batch_spans = 1});
  exporter_->Add(Named("a"));
  const absl::Time give_up = SteadyNow() + absl::Seconds(20);
  while (sent().size() < 3 && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(1));
  exporter_.reset();
  EXPECT_THAT(sent(), ElementsAre(1, 1, 1));
  EXPECT_EQ(Exported(), 1);
}

// A collector that asks for no pause gets the same one: many do so when they are overloaded.
TEST_F(SpanExporterTest, PausesGrowAndVaryAtRandomWhateverTheCollectorSays) {
  const SendResult busy = {.outcome = Outcome::kTryAgain}, at_once = {Outcome::kTryAgain, absl::ZeroDuration()};
  Start({busy, at_once, busy, busy},
        {.delay = absl::Hours(1), .first_pause = absl::Milliseconds(100), .max_batch_spans = 1},
        /*random_bits=*/~uint64_t{0});
  exporter_->Add(Named("a"));
  const std::vector<absl::Duration> pauses = Pauses(5);
  ASSERT_EQ(pauses.size(), 4u);
  const double kLongest = 1.2 * 0.99;  // the jitter's
  absl::Duration least = absl::Milliseconds(100) * kLongest;
  for (const absl::Duration pause : pauses) {
    EXPECT_GE(pause, least);
    least *= 1.5;
  }
}

TEST_F(SpanExporterTest, ACollectorMayAskForALongerPause) {
  Start({{.outcome = Outcome::kTryAgain, .try_again_after = absl::Milliseconds(300)}},
        {.delay = absl::Hours(1), .first_pause = absl::Milliseconds(1), .max_batch_spans = 1});
  exporter_->Add(Named("a"));
  EXPECT_GE(Pauses(2).at(0), absl::Milliseconds(300));
}

TEST_F(SpanExporterTest, ABatchThatCannotWaitAsLongAsAskedIsLostAndTheNextOneDoesNotComeAtOnce) {
  Start({{.outcome = Outcome::kTryAgain, .try_again_after = absl::Hours(1)}},
        {.delay = absl::Hours(1), .export_timeout = absl::Milliseconds(300), .max_batch_spans = 1});
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  EXPECT_GE(Pauses(2).at(0), absl::Milliseconds(290));
  exporter_.reset();
  EXPECT_EQ(Undelivered(), 1);
  EXPECT_EQ(Exported(), 1);
}

// A service that restarts would otherwise lose the spans of its last seconds.
TEST_F(SpanExporterTest, AnEndCutsAPauseShortForOneMoreTry) {
  Start({{.outcome = Outcome::kTryAgain}}, {.delay = absl::ZeroDuration(), .first_pause = absl::Minutes(1)});
  exporter_->Add(Named("a"));
  Pauses(1);
  exporter_.reset();
  EXPECT_THAT(sent(), ElementsAre(1, 1));
  EXPECT_EQ(Exported(), 1);
}

TEST_F(SpanExporterTest, AnEndAddsASingleTry) {
  const SendResult busy = {.outcome = Outcome::kTryAgain};
  Start({busy, busy}, {.delay = absl::ZeroDuration(), .first_pause = absl::Minutes(1)});
  exporter_->Add(Named("a"));
  Pauses(1);
  exporter_.reset();
  EXPECT_THAT(sent(), ElementsAre(1, 1));
  EXPECT_EQ(Undelivered(), 1);
}

TEST_F(SpanExporterTest, AnEndCutsNoPauseShortThatTheCollectorAskedFor) {
  Start({{.outcome = Outcome::kTryAgain, .try_again_after = absl::Seconds(20)}}, {.delay = absl::ZeroDuration()});
  exporter_->Add(Named("a"));
  Pauses(1);
  exporter_.reset();
  EXPECT_THAT(sent(), ElementsAre(1));
  EXPECT_EQ(Undelivered(), 1);
}

TEST_F(SpanExporterTest, GivesUpAfterFiveTries) {
  const SendResult busy = {.outcome = Outcome::kTryAgain};
  Start({busy, busy, busy, busy, busy},
        {.delay = absl::Hours(1), .first_pause = absl::Milliseconds(1), .max_batch_spans = 1});
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  const absl::Time give_up = SteadyNow() + absl::Seconds(20);
  while (Exported() < 1 && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(Undelivered(), 1);
  EXPECT_THAT(sent(), ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST_F(SpanExporterTest, APartialSuccessIsNotSentAgain) {
  Start({{.num_rejected_spans = 2, .message = "two were bad"}}, {.delay = absl::Hours(1)});
  for (int i = 0; i < 3; ++i) exporter_->Add(Named("a"));
  exporter_.reset();
  EXPECT_THAT(sent(), ElementsAre(3));
  EXPECT_EQ(Exported(), 1);
  EXPECT_EQ(Undelivered(), 2);
}

TEST_F(SpanExporterTest, ACollectorCannotRejectMoreThanItGot) {
  Start({{.num_rejected_spans = ~uint64_t{0}}}, {.delay = absl::Hours(1)});
  exporter_->Add(Named("a"));
  exporter_.reset();
  EXPECT_EQ(Exported(), 0);
  EXPECT_EQ(Undelivered(), 1);
}

TEST_F(SpanExporterTest, ABatchOfManyBytesLeavesInPartsThatCollectorsTake) {
  Start({}, {.delay = absl::Hours(1)});
  for (int i = 0; i < 8; ++i) exporter_->Add(WithText(600 << 10));
  exporter_.reset();
  EXPECT_THAT(sent(), ElementsAre(3, 3, 2));
  EXPECT_EQ(Exported(), 8);
}

TEST_F(SpanExporterTest, ASpanOfManyBytesTakesNoOtherWithIt) {
  Start({{.outcome = Outcome::kRefused}}, {.delay = absl::Hours(1)});
  exporter_->Add(WithText(5 << 20));
  exporter_->Add(Named("a"));
  exporter_.reset();
  EXPECT_THAT(sent(), ElementsAre(1, 1));
  EXPECT_EQ(Exported(), 1);
  EXPECT_EQ(Undelivered(), 1);
}

TEST_F(SpanExporterTest, WhatACollectorSaysOfSpansThatItTakesIsOneLine) {
  const testing::CapturedLog log;
  const SendResult advice = {.message = "the attribute is deprecated"};
  Start({advice, advice, {}, advice}, {.delay = absl::Hours(1), .max_batch_spans = 1});
  for (int i = 0; i < 4; ++i) exporter_->Add(Named("a"));
  const absl::Time give_up = SteadyNow() + absl::Seconds(20);
  while (Exported() < 4 && SteadyNow() < give_up) absl::SleepFor(absl::Milliseconds(1));
  exporter_.reset();
  const std::string line = "warning the collector of traces takes spans and says: \"the attribute is deprecated\"";
  EXPECT_THAT(log.Lines(), ElementsAre(line, line)) << "the batch between said nothing";
  EXPECT_EQ(Undelivered(), 0);
}

TEST_F(SpanExporterTest, ACollectorWhoseTroublesComeAndGoCausesFewLines) {
  const testing::CapturedLog log;
  std::vector<SendResult> script;
  for (int i = 0; i < 100; ++i) script.push_back({.num_rejected_spans = i % 2 == 0 ? 1u : 0u, .message = "advice"});
  Start(script, {.delay = absl::Hours(1), .max_batch_spans = 1});
  for (int i = 0; i < 100; ++i) exporter_->Add(Named("a"));
  Pauses(100);
  exporter_.reset();
  EXPECT_EQ(Exported(), 50);
  EXPECT_GE(log.Lines().size(), 5u);
  EXPECT_LT(log.Lines().size(), 20u);  // a slow machine may earn more than the first five
}

TEST_F(SpanExporterTest, ATryThatIsUnderWayDelaysTheEndByAtMostTheFlushTime) {
  blocks_until_the_end_ = true;
  Start({{.outcome = Outcome::kTryAgain}}, {.delay = absl::ZeroDuration()});
  exporter_->Add(Named("a"));
  absl::SleepFor(absl::Milliseconds(50));
  const absl::Time begin = SteadyNow();
  exporter_.reset();
  EXPECT_GE(SteadyNow() - begin, SpanExporter::kMaxFlush - absl::Seconds(1));
  EXPECT_LT(SteadyNow() - begin, SpanExporter::kMaxFlush + absl::Seconds(5));
  EXPECT_EQ(Undelivered(), 1);
}

TEST_F(SpanExporterTest, ADeadCollectorDelaysTheEndByAtMostTheFlushTime) {
  Start(std::vector<SendResult>(100, {.outcome = Outcome::kTryAgain}), {.delay = absl::Hours(1), .max_batch_spans = 1});
  for (int i = 0; i < 20; ++i) exporter_->Add(Named("a"));
  const absl::Time begin = SteadyNow();
  exporter_.reset();
  EXPECT_LT(SteadyNow() - begin, SpanExporter::kMaxFlush + absl::Seconds(5));
  EXPECT_EQ(Undelivered(), 20);
}

}  // namespace
}  // namespace foretoken::tracing
