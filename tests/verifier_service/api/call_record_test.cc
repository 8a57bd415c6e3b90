// SPDX-License-Identifier: Apache-2.0
// The log line of a call. If this test fails, operators read wrong times or counts, or a client can forge log lines
// with a name.
#include "verifier_service/api/call_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/captured_log.h"

namespace foretoken::verifier {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace foretoken::verifier
