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
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

CallTrace Untraced() {
  static const tracing::Tracer off;
  return CallTrace(off, {});
}

TEST(CallRecord, ItsEventHasTimesAndCountsOfAllSamples) {
  testing::CapturedLog log;
  spdlog::set_level(spdlog::level::debug);
  telemetry::Metrics registry;
  CallMetrics metrics(registry);
  CallRecord record(&metrics, Untraced());
  record.Submit({.request_id = "mine", .tenant = "team", .prompt = {1, 2, 3}, .num_samples = 2}, "model");
  record.Observe({.began = absl::UnixEpoch(), .token_ids = {1, 2}, .speculated = {false, true}});
  record.Observe({.sample_index = 1, .token_ids = {3}, .speculated = {false}});
  record.Observe({.completion = SampleCompletion{.finish_reason = FinishReason::kStop, .num_steps = 4}});
  record.Observe(
      {.sample_index = 1, .completion = SampleCompletion{.finish_reason = FinishReason::kLength, .num_steps = 5}});
  record.End(absl::OkStatus());
  EXPECT_THAT(
      log.Lines(),
      ElementsAre(ContainsRegex(
          "request ended: request_id=\"mine\" trace_id=\"\" tenant=\"team\" code=\"OK\" error=\"\" prompt_tokens=3 "
          "tokens=3 accepted=1 steps=9 finish_reasons=\"stop,length\" queue_ms=[0-9.]+ first_token_ms=[0-9.]+ "
          "total_ms=[0-9.]+")));
}

TEST(CallRecord, ItsEventIsOneLineForAnyNames) {
  testing::CapturedLog log;
  spdlog::set_level(spdlog::level::debug);
  telemetry::Metrics registry;
  CallMetrics metrics(registry);
  CallRecord record(&metrics, Untraced());
  record.Submit({.request_id = "a\n2026 error \"x\"", .tenant = "\x1b[31m"}, "model");
  record.End(absl::CancelledError("gone"));
  ASSERT_EQ(log.Lines().size(), 1u);
  EXPECT_THAT(log.Lines()[0], HasSubstr("request_id=\"a\\n2026 error \\\"x\\\"\""));
  EXPECT_THAT(log.Lines()[0], HasSubstr("tenant=\"\\x1b[31m\" code=\"CANCELLED\" error=\"gone\""));
}

TEST(CallRecord, AnErrorThatQuotesTheRequestIsInNoLog) {
  testing::CapturedLog log;
  spdlog::set_level(spdlog::level::debug);
  telemetry::Metrics registry;
  CallMetrics metrics(registry);
  const absl::Status error = base::Confidential(rpc::InvalidField("chat", "the template says: my secret"));
  CallRecord(&metrics, Untraced()).End(error);
  CallRecord submitted(&metrics, Untraced());
  submitted.Submit({.request_id = "mine"}, "model");
  submitted.End(error);
  ASSERT_EQ(log.Lines().size(), 2u);
  for (const std::string& line : log.Lines()) {
    EXPECT_THAT(line, HasSubstr("error=\"chat: the client has the message"));
    EXPECT_THAT(line, ::testing::Not(HasSubstr("secret")));
  }
}

// Returns how many samples have ended for this reason.
double NumEnded(const telemetry::Metrics& registry, const std::string& reason) {
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    if (family.name != "foretoken_samples_finished_total") continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      if (metric.label.at(0).value == reason) return metric.counter.value;
    }
  }
  ADD_FAILURE() << "no samples with reason " << reason;
  return 0;
}

// Ends a call with this error. One of its three samples has stopped before.
std::map<std::string, double> EndedSamplesAfter(const absl::Status& error) {
  telemetry::Metrics registry;
  CallMetrics metrics(registry);
  CallRecord record(&metrics, Untraced());
  record.Submit({.request_id = "mine", .prompt = {1, 2, 3}, .num_samples = 3}, "model");
  record.Observe({.sample_index = 1, .completion = SampleCompletion{.finish_reason = FinishReason::kStop}});
  record.End(error);
  std::map<std::string, double> ended;
  for (const char* reason : {"stop", "length", "abort", "shutdown", "error"}) {
    const double num_ended = NumEnded(registry, reason);
    if (num_ended > 0) ended[reason] = num_ended;
  }
  return ended;
}

TEST(CallRecord, CountsTheSamplesThatAnErrorEnds) {
  const absl::Status bad_logits = base::WithReason(absl::InternalError("the logits"), "LOGITS_NOT_FINITE");
  EXPECT_THAT(EndedSamplesAfter(bad_logits), UnorderedElementsAre(Pair("stop", 1), Pair("error", 2)));
  EXPECT_THAT(EndedSamplesAfter(base::WithReason(absl::UnavailableError("ends"), "DEVICE_FAILED")),
              UnorderedElementsAre(Pair("stop", 1), Pair("error", 2)));
}

TEST(CallRecord, CountsTheSamplesThatTheClientOrALimitEndsAsAborts) {
  for (const absl::Status& error :
       {absl::CancelledError("gone"), absl::DeadlineExceededError("late"), absl::InvalidArgumentError("no token"),
        absl::ResourceExhaustedError("the output is not read")}) {
    EXPECT_THAT(EndedSamplesAfter(error), UnorderedElementsAre(Pair("stop", 1), Pair("abort", 2))) << error;
  }
}

TEST(CallRecord, CountsTheSamplesOfADrainedCallAsShutdown) {
  EXPECT_THAT(EndedSamplesAfter(base::WithReason(absl::UnavailableError("drains"), "DRAINING")),
              UnorderedElementsAre(Pair("stop", 1), Pair("shutdown", 2)));
}

TEST(CallRecord, ARequestThatTheEngineNeverHadHasNoSamples) {
  telemetry::Metrics registry;
  CallMetrics metrics(registry);
  CallRecord(&metrics, Untraced()).End(absl::InternalError("early"));
  EXPECT_EQ(NumEnded(registry, "error"), 0);
}

}  // namespace
}  // namespace foretoken::verifier
