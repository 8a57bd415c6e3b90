// SPDX-License-Identifier: Apache-2.0
// The log line of a call. If this test fails, operators read wrong times or counts, or a client can forge log lines
// with a name.
#include "verifier_service/api/call_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prometheus/registry.h"

namespace foretoken::verifier {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CallRecord, ItsLineHasTimesAndCountsOfAllSamples) {
  prometheus::Registry registry;
  CallMetrics metrics(registry);
  CallRecord record(&metrics);
  record.Submit({.request_id = "mine", .tenant = "team", .prompt = {1, 2, 3}, .num_samples = 2});
  record.Observe({.begins = true, .token_ids = {1, 2}, .speculated = {false, true}});
  record.Observe({.sample_index = 1, .token_ids = {3}, .speculated = {false}});
  record.Observe({.completion = SampleCompletion{.finish_reason = FinishReason::kStop, .num_steps = 4}});
  record.Observe(
      {.sample_index = 1, .completion = SampleCompletion{.finish_reason = FinishReason::kLength, .num_steps = 5}});
  EXPECT_THAT(record.ToLine(absl::OkStatus()),
              ContainsRegex("request \"mine\" of tenant \"team\": OK, 3 prompt tokens, 3 tokens, 1 accepted, 9 steps, "
                            "finished \\[stop,length\\], queued [0-9.]+ ms, first token after [0-9.]+ ms, all after"));
}

TEST(CallRecord, ItsLineIsOneLineForAnyNames) {
  prometheus::Registry registry;
  CallMetrics metrics(registry);
  CallRecord record(&metrics);
  record.Submit({.request_id = "a\n2026 error \"x\"", .tenant = "\x1b[31m"});
  const std::string line = record.ToLine(absl::CancelledError("gone"));
  EXPECT_THAT(line, HasSubstr("request \"a\\n2026 error \\\"x\\\"\" of tenant \"\\x1b[31m\": CANCELLED"));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_THAT(line, HasSubstr("first token after none"));
}

}  // namespace
}  // namespace foretoken::verifier
