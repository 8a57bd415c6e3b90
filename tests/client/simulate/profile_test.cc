// SPDX-License-Identifier: Apache-2.0
// A verifier's profile, from reports of steps and from a file. If this test fails, a simulation computes with numbers
// that nobody measured.
#include "client/simulate/profile.h"

#include "client/simulate/levels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ReportedStep {
  uint64_t number = 0;
  uint32_t num_sequences = 1;
  uint32_t num_prompt_rows = 0;
  uint32_t num_tree_rows = 0;
  float ms = 0;
  int num_tokens = 1;
};

// A request with these steps.
TimedGeneration Reported(const std::vector<ReportedStep>& steps) {
  Sample sample;
  sample.completion.emplace().mutable_usage()->set_prompt_tokens(10);
  sample.completion->mutable_usage()->set_cached_tokens(4);
  sample.completion->mutable_usage()->set_completion_tokens(20);
  for (const ReportedStep& step : steps) {
    foretoken::v1::StepReport& report = sample.steps.emplace_back();
    report.set_step(step.number);
    report.mutable_batch()->set_num_sequences(step.num_sequences);
    report.mutable_batch()->set_num_prompt_rows(step.num_prompt_rows);
    report.mutable_batch()->set_num_tree_rows(step.num_tree_rows);
    report.mutable_batch()->set_num_rows(step.num_sequences + step.num_prompt_rows + step.num_tree_rows);
    report.mutable_times()->set_forward_ms(step.ms / 2);
    report.mutable_times()->set_host_ms(step.ms / 2);
    for (int i = 0; i < step.num_tokens; ++i) report.add_token_ids(1);
    foretoken::v1::StepProposer& proposer = *report.add_proposers();
    proposer.set_proposer("ngram");
    proposer.set_round_trip_ms(0.5f);
  }
  return {.generation = {.samples = {sample}}};
}

std::vector<ReportedStep> Steps(int num, const ReportedStep& like) {
  std::vector<ReportedStep> steps(num, like);
  for (int i = 0; i < num; ++i) steps[i].number = like.number + i;
  return steps;
}

TEST(ProfileBuilder, CountsAStepOfManySamplesOnce) {
  const std::vector<ReportedStep> steps = Steps(10, {.number = 1, .num_sequences = 2, .ms = 8, .num_tokens = 3});
  const std::vector<TimedGeneration> both = {Reported(steps), Reported(steps)};
  ProfileBuilder builder;
  builder.Add(both, true);
  builder.Add(std::vector{Reported(Steps(10, {.number = 100, .ms = 4}))}, false);
  const Profile profile = builder.Build("model").value();
  ASSERT_EQ(profile.speculative.size(), 1);
  EXPECT_EQ(profile.speculative[0].num_sequences, 2);
  EXPECT_EQ(profile.speculative[0].num_steps, 10);
  EXPECT_FLOAT_EQ(profile.speculative[0].step_ms, 8);
  EXPECT_THAT(profile.speculative[0].accepted_lengths, ElementsAre(0, 0, 1));
  EXPECT_FLOAT_EQ(profile.plain[0].step_ms, 4);
  ASSERT_EQ(profile.proposers.size(), 1);
  EXPECT_EQ(profile.proposers[0].name, "ngram");
  EXPECT_FLOAT_EQ(profile.proposers[0].proposal_ms, 0.5);
  ASSERT_EQ(profile.requests.size(), 2) << "of the first run";
  EXPECT_EQ(profile.requests[0].prompt_tokens, 6);
  EXPECT_EQ(profile.requests[0].output_tokens, 20);
}

TEST(ProfileBuilder, TakesTheTimeOfRowsFromStepsWithoutGuesses) {
  std::vector<ReportedStep> steps = Steps(10, {.number = 1, .ms = 4});
  steps.push_back({.number = 50, .num_sequences = 1, .num_prompt_rows = 99, .ms = 54});
  steps.push_back({.number = 51, .num_sequences = 1, .num_prompt_rows = 20, .num_tree_rows = 9, .ms = 500});
  ProfileBuilder builder;
  builder.Add(std::vector{Reported(steps)}, true);
  builder.Add(std::vector{Reported(Steps(10, {.number = 100, .ms = 6}))}, false);
  const std::vector<ProfileRows> rows = builder.Build("model")->rows;
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0].num_rows, 1);
  EXPECT_FLOAT_EQ(rows[0].step_ms, 5) << "of both runs";
  EXPECT_EQ(rows[1].num_rows, 100);
  EXPECT_FLOAT_EQ(rows[1].step_ms, 54);
}

TEST(ProfileBuilder, MoreRowsNeverTakeLessTime) {
  std::vector<ReportedStep> steps = Steps(10, {.number = 1, .ms = 4});
  steps.push_back({.number = 50, .num_sequences = 1, .num_prompt_rows = 9, .ms = 30});
  steps.push_back({.number = 51, .num_sequences = 1, .num_prompt_rows = 29, .ms = 20});
  ProfileBuilder builder;
  builder.Add(std::vector{Reported(steps)}, false);
  builder.Add(std::vector{Reported(Steps(10, {.number = 100, .ms = 4}))}, true);
  const std::vector<ProfileRows> rows = builder.Build("model")->rows;
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1].num_rows, 20) << "the mean of 10 and 30";
  EXPECT_FLOAT_EQ(rows[1].step_ms, 25);
}

// The end of a run of four clients has three for a while, and another program may hold these steps up.
TEST(ProfileBuilder, LeavesOutWhatOnlyTheEndOfARunHas) {
  std::vector<ReportedStep> steps = Steps(100, {.number = 1, .num_sequences = 4, .ms = 14});
  for (const ReportedStep& step : Steps(20, {.number = 200, .num_sequences = 3, .ms = 90})) steps.push_back(step);
  for (const ReportedStep& step : Steps(60, {.number = 300, .num_sequences = 2, .ms = 10})) steps.push_back(step);
  ProfileBuilder builder;
  builder.Add(std::vector{Reported(steps)}, true);
  builder.Add(std::vector{Reported(Steps(10, {.number = 100, .ms = 4}))}, false);
  const std::vector<ProfileLevel> levels = builder.Build("model")->speculative;
  ASSERT_EQ(levels.size(), 2);
  EXPECT_EQ(levels[0].num_sequences, 2);
  EXPECT_EQ(levels[1].num_sequences, 4);
}

TEST(ProfileBuilder, NeedsReports) {
  ProfileBuilder builder;
  builder.Add(std::vector{Reported({})}, true);
  const absl::Status status = builder.Build("model").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--allow_step_reports"));
}

TEST(Levels, AreReadBetweenAndBeyond) {
  const std::vector<ProfileLevel> levels = {
      {.num_sequences = 2, .num_steps = 9, .step_ms = 10, .accepted_lengths = {1}},
      {.num_sequences = 4, .num_steps = 9, .step_ms = 14, .accepted_lengths = {0.5, 0.5}}};
  EXPECT_EQ(StepMs(levels, 1), 10);
  EXPECT_EQ(StepMs(levels, 2), 10);
  EXPECT_EQ(StepMs(levels, 3), 12);
  EXPECT_EQ(StepMs(levels, 4), 14);
  EXPECT_EQ(StepMs(levels, 8), 22);
  EXPECT_THAT(AcceptedLengths(levels, 1), ElementsAre(1));
  EXPECT_THAT(AcceptedLengths(levels, 3), ElementsAre(0.75, 0.25));
  EXPECT_THAT(AcceptedLengths(levels, 9), ElementsAre(0.5, 0.5));
}

TEST(Levels, TimesOfRowsAreReadBetweenAndBeyond) {
  const std::vector<ProfileRows> rows = {{.num_rows = 2, .step_ms = 10}, {.num_rows = 8, .step_ms = 16}, {9, 30}};
  EXPECT_EQ(StepMsOfRows(rows, 1), 10);
  EXPECT_EQ(StepMsOfRows(rows, 5), 13);
  EXPECT_EQ(StepMsOfRows(rows, 9), 30);
  EXPECT_NEAR(StepMsOfRows(rows, 16), 50, 1e-9) << "on the line from 2 rows to 9";
  EXPECT_EQ(StepMsOfRows(std::span(rows).first(1), 50), 10);
}

const char kGood[] = R"({"format": 3, "model": "m",
  "proposers": [{"name": "draft", "proposal_ms": 2}, {"name": "ngram", "proposal_ms": 0.5}],
  "rows": [{"num_rows": 1, "step_ms": 5}, {"num_rows": 101, "step_ms": 15}],
  "plain": [{"num_sequences": 1, "num_steps": 9, "step_ms": 5, "accepted_lengths": [1]}],
  "speculative": [{"num_sequences": 1, "num_steps": 9, "step_ms": 6, "accepted_lengths": [0.5, 0.5]}],
  "requests": [{"prompt_tokens": 10, "output_tokens": 20}]})";

TEST(ParseProfile, ReadsWhatWasWritten) {
  const Profile profile = ParseProfile(kGood).value();
  EXPECT_EQ(profile.model, "m");
  EXPECT_EQ(ToJson(ParseProfile(ToJson(profile).dump()).value()).dump(), ToJson(profile).dump());
}

TEST(ParseProfile, NamesTheFieldOfABadFile) {
  const auto message = [](const std::string& from, const std::string& to) {
    std::string text = kGood;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return std::string(ParseProfile(text.replace(at, from.size(), to)).status().message());
  };
  EXPECT_EQ(message("{\"format\"", "[\"format\""), "profile: file: expected a JSON object");
  EXPECT_EQ(message("\"format\": 3", "\"format\": 2"), "profile: format: expected 3");
  EXPECT_EQ(message("\"rows\"", "\"lines\""), "profile: rows: expected a list");
  EXPECT_EQ(message("\"num_rows\": 101", "\"num_rows\": 1"), "profile: num_rows: expected rising numbers");
  EXPECT_EQ(message("\"step_ms\": 15", "\"step_ms\": 4"), "profile: rows: expected a step_ms that never falls");
  EXPECT_EQ(message("\"proposal_ms\": 0.5", "\"proposal_ms\": \"soon\""), "profile: proposal_ms: expected a number");
  EXPECT_EQ(message("\"proposers\"", "\"guessers\""), "profile: proposers: expected a list");
  EXPECT_EQ(message("\"ngram\"", "1"), "profile: name: expected a text");
  EXPECT_EQ(message("\"ngram\"", "\"draft\""), "profile: proposers: expected names in alphabetical order");
  EXPECT_EQ(message("\"plain\"", "\"simple\""), "profile: plain: expected a list of levels");
  EXPECT_EQ(message("\"step_ms\": 6", "\"step_ms\": 0"), "profile: step_ms: expected 1e-06 to 1e9");
  EXPECT_EQ(message("[0.5, 0.5]", "[0.5, 0.4]"), "profile: accepted_lengths: expected shares that add up to 1");
  EXPECT_EQ(message("[0.5, 0.5]", "[]"), "profile: accepted_lengths: expected shares");
  EXPECT_EQ(message("[1]", "[-1, 2]"), "profile: accepted_lengths: expected shares of at least 0");
  EXPECT_EQ(message("\"output_tokens\": 20", "\"output_tokens\": 0"), "profile: output_tokens: expected 1 to 1e9");
  EXPECT_EQ(message("[{\"prompt_tokens\": 10, \"output_tokens\": 20}]", "[]"), "profile: requests: expected a list");
  EXPECT_EQ(message("[{\"num_sequences\": 1, \"num_steps\": 9, \"step_ms\": 5,", "[{\"num_sequences\": 0,"),
            "profile: num_sequences: expected 1 to 1e9");
}

}  // namespace
}  // namespace foretoken::client
