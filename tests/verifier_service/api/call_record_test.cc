// SPDX-License-Identifier: Apache-2.0
// The log line of a call, and the ends of its samples. If this test fails, operators read wrong times or counts, or a
// client can forge log lines with a name.
#include "verifier_service/api/call_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "common/base/error_text.h"
#include "common/rpc/status.h"
#include "tests/testing/captured_log.h"

namespace foretoken::verifier {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Makes records of calls that share their metrics and the limits of their warnings.
class CallRecordTest : public ::testing::Test {
 protected:
  CallRecord Begin(const std::string& traceparent = "") {
    static const tracing::Tracer off;
    return CallRecord({.metrics = &metrics_, .fault_lines = &fault_lines_},
                      CallTrace(off, {.method = "p.S/M", .caller = tracing::ParseTraceContext(traceparent)}));
  }
  // A call whose request the engine takes and that then ends so.
  void Fail(const absl::Status& error) {
    CallRecord record = Begin();
    record.Submit({.request_id = "mine"}, "model");
    record.End(error);
  }
  prometheus::ClientMetric::Histogram Histogram(const std::string& name) const {
    for (const prometheus::MetricFamily& family : registry_.Collect()) {
      if (family.name == name) return family.metric.at(0).histogram;
    }
    ADD_FAILURE() << "no histogram " << name;
    return {};
  }

  telemetry::Metrics registry_;
  CallMetrics metrics_{registry_};
  telemetry::LineLimits fault_lines_;
};

TEST_F(CallRecordTest, ItsEventHasTimesAndCountsOfAllSamples) {
  testing::CapturedLog log;
  spdlog::set_level(spdlog::level::debug);
  CallRecord record = Begin();
  const absl::Time now = record.arrival();
  record.Submit({.request_id = "mine", .tenant = "team", .prompt = {1, 2, 3}, .num_samples = 2}, "model");
  record.Observe({.time = now, .began = now, .token_ids = {1, 2}, .speculated = {false, true}});
  record.Observe({.sample_index = 1, .time = now, .token_ids = {3}, .speculated = {false}});
  record.Observe({.sample_index = 1, .time = now, .token_ids = {4}, .speculated = {false}});
  record.Observe({.completion = SampleCompletion{.finish_reason = FinishReason::kStop}});
  record.Observe({.sample_index = 1, .completion = SampleCompletion{.finish_reason = FinishReason::kLength}});
  record.End(absl::OkStatus());
  EXPECT_THAT(
      log.Lines(),
      ElementsAre(ContainsRegex(
          "request ended: request_id=\"mine\" trace_id=\"\" tenant=\"team\" code=\"OK\" error=\"\" prompt_tokens=3 "
          "tokens=4 accepted=1 steps=3 finish_reasons=\"stop,length\" queue_ms=[0-9.]+ first_token_ms=[0-9.]+ "
          "total_ms=[0-9.]+")));
}

TEST_F(CallRecordTest, SplitsTheTimeOfASampleWhereTheRequestLeavesTheQueue) {
  CallRecord record = Begin();
  const auto after = [&](int ms) { return record.arrival() + absl::Milliseconds(ms); };
  record.Submit({.request_id = "mine", .prompt = {1}}, "model");
  record.Observe({.time = after(30), .began = after(5), .token_ids = {1}});
  record.Observe({.time = after(70), .token_ids = {2}, .completion = SampleCompletion{.num_completion_tokens = 2}});
  record.End(absl::OkStatus());
  EXPECT_NEAR(Histogram("foretoken_queue_wait_seconds").sample_sum, .005, 1e-6);
  EXPECT_NEAR(Histogram("foretoken_prompt_seconds").sample_sum, .025, 1e-6);
  EXPECT_NEAR(Histogram("foretoken_time_to_first_token_seconds").sample_sum, .030, 1e-6);
  EXPECT_NEAR(Histogram("foretoken_decode_seconds").sample_sum, .040, 1e-6);
  EXPECT_NEAR(Histogram("foretoken_inference_seconds").sample_sum, .065, 1e-6);
}

TEST_F(CallRecordTest, ARequestThatJoinsAStepUnderWayHasNotWaited) {
  CallRecord record = Begin();
  record.Submit({.request_id = "mine", .prompt = {1}}, "model");
  record.Observe({.began = record.arrival() - absl::Seconds(1)});
  EXPECT_EQ(Histogram("foretoken_queue_wait_seconds").sample_count, 1u);
  EXPECT_EQ(Histogram("foretoken_queue_wait_seconds").sample_sum, 0);
}

TEST_F(CallRecordTest, ARequestThatTheServerBreaksIsAWarningWithItsIds) {
  const testing::CapturedLog log;
  CallRecord record = Begin("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  record.Submit({.request_id = "mine", .prompt = {1, 2}}, "model");
  record.End(base::WithReason(absl::InternalError("the logits are not finite"), "LOGITS_NOT_FINITE"));
  EXPECT_THAT(log.Lines(), ElementsAre(ContainsRegex("^warning request ended: request_id=\"mine\" "
                                                     "trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\" tenant=\"\" "
                                                     "code=\"INTERNAL\" error=\"the logits are not finite\" ")));
}

TEST_F(CallRecordTest, ManyBrokenRequestsFillNoLogAndHideNoOtherFault) {
  const testing::CapturedLog log;
  for (int i = 0; i < 100; ++i) Fail(base::WithReason(absl::UnavailableError("hangs"), "ENGINE_STALLED"));
  EXPECT_THAT(log.Lines(), SizeIs(telemetry::LineLimit::kBurst));
  Fail(absl::InternalError("broken"));
  EXPECT_THAT(log.Lines(), SizeIs(telemetry::LineLimit::kBurst + 1));
}

TEST_F(CallRecordTest, WhatClientsAndDrainsEndIsNoWarning) {
  const testing::CapturedLog log;
  for (const absl::Status& end :
       {absl::OkStatus(), absl::CancelledError("gone"), absl::DeadlineExceededError("late"),
        absl::InvalidArgumentError("no token"), base::WithReason(absl::UnavailableError("drains"), "DRAINING")}) {
    Fail(end);
    Begin().End(end);
  }
  EXPECT_THAT(log.Lines(), IsEmpty());
}

TEST_F(CallRecordTest, ItsEventIsOneLineForAnyNames) {
  testing::CapturedLog log;
  spdlog::set_level(spdlog::level::debug);
  CallRecord record = Begin();
  record.Submit({.request_id = "a\n2026 error \"x\"", .tenant = "\x1b[31m"}, "model");
  record.End(absl::CancelledError("gone"));
  ASSERT_EQ(log.Lines().size(), 1u);
  EXPECT_THAT(log.Lines()[0], HasSubstr("request_id=\"a\\n2026 error \\\"x\\\"\""));
  EXPECT_THAT(log.Lines()[0], HasSubstr("tenant=\"\\x1b[31m\" code=\"CANCELLED\" error=\"gone\""));
}

TEST_F(CallRecordTest, AnErrorThatQuotesTheRequestIsInNoLog) {
  testing::CapturedLog log;
  spdlog::set_level(spdlog::level::debug);
  const absl::Status error = base::Confidential(rpc::InvalidField("chat", "the template says: my secret"));
  Begin().End(error);
  Fail(error);
  ASSERT_EQ(log.Lines().size(), 2u);
  for (const std::string& line : log.Lines()) {
    EXPECT_THAT(line, HasSubstr("error=\"chat: the client has the message"));
    EXPECT_THAT(line, ::testing::Not(HasSubstr("secret")));
  }
}

class EndedSamples : public CallRecordTest {
 protected:
  using Counts = std::map<std::string, double>;

  // Ends a call with this error. One of its three samples has stopped before.
  Counts After(const absl::Status& error) {
    const Counts before = NumEnded();
    CallRecord record = Begin();
    record.Submit({.request_id = "mine", .prompt = {1, 2, 3}, .num_samples = 3}, "model");
    record.Observe({.sample_index = 1, .completion = SampleCompletion{.finish_reason = FinishReason::kStop}});
    record.End(error);
    Counts ended;
    for (const auto& [reason, num_ended] : NumEnded()) {
      if (num_ended > before.at(reason)) ended[reason] = num_ended - before.at(reason);
    }
    return ended;
  }
  // How many samples have ended for each reason.
  Counts NumEnded() const {
    Counts counts;
    for (const prometheus::MetricFamily& family : registry_.Collect()) {
      if (family.name != "foretoken_samples_finished_total") continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        counts[metric.label.at(0).value] = metric.counter.value;
      }
    }
    return counts;
  }
};

TEST_F(EndedSamples, OfAServersErrorAreErrors) {
  const absl::Status bad_logits = base::WithReason(absl::InternalError("the logits"), "LOGITS_NOT_FINITE");
  EXPECT_THAT(After(bad_logits), UnorderedElementsAre(Pair("stop", 1), Pair("error", 2)));
  EXPECT_THAT(After(base::WithReason(absl::UnavailableError("ends"), "DEVICE_FAILED")),
              UnorderedElementsAre(Pair("stop", 1), Pair("error", 2)));
}

TEST_F(EndedSamples, OfAClientOrALimitAreAborts) {
  for (const absl::Status& error :
       {absl::CancelledError("gone"), absl::DeadlineExceededError("late"), absl::InvalidArgumentError("no token"),
        absl::ResourceExhaustedError("the output is not read")}) {
    EXPECT_THAT(After(error), UnorderedElementsAre(Pair("stop", 1), Pair("abort", 2))) << error;
  }
}

TEST_F(EndedSamples, OfADrainedCallAreShutdowns) {
  EXPECT_THAT(After(base::WithReason(absl::UnavailableError("drains"), "DRAINING")),
              UnorderedElementsAre(Pair("stop", 1), Pair("shutdown", 2)));
}

TEST_F(EndedSamples, OfARequestThatTheEngineNeverHadDoNotExist) {
  const Counts before = NumEnded();
  Begin().End(absl::InternalError("early"));
  CallRecord refused = Begin();
  refused.Submit({.request_id = "mine", .prompt = {1, 2, 3}}, "model");
  refused.Withdraw();
  refused.End(absl::ResourceExhaustedError("full"));
  EXPECT_EQ(NumEnded(), before);
  EXPECT_EQ(Histogram("foretoken_refusal_seconds").sample_count, 2u);
  EXPECT_EQ(Histogram("foretoken_queue_wait_seconds").sample_count, 0u);
  EXPECT_EQ(Histogram("foretoken_request_samples").sample_count, 0u);
}

}  // namespace
}  // namespace foretoken::verifier
