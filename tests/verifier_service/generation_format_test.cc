// SPDX-License-Identifier: Apache-2.0
// Response formats over gRPC, from a whole verifier. If this test fails, a client gets an output without the form that
// it asked for, or a bad form gets no clear error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/testing/error_details.h"
#include "tests/testing/running_verifier.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;
using testing::Output;
using testing::RunningVerifier;

Config FormatConfig() {
  Config config = testing::DemoConfig();
  config.grammars.program = FORETOKEN_BINARY_DIR "/foretoken_verifier";
  return config;
}

v1::GenerateRequest Formed(const v1::ResponseFormat& format, float temperature = 0) {
  v1::GenerateRequest request;
  request.set_text("def answer():\n    return ");
  request.mutable_sampling()->set_temperature(temperature);
  request.mutable_sampling()->set_seed(7);
  request.mutable_stopping()->set_max_tokens(60);
  *request.mutable_response_format() = format;
  return request;
}

// Takes more than a second to compile.
std::string HostileSchema() {
  std::string schema = "{\"type\":\"object\",\"properties\":{";
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&schema, i > 0 ? "," : "", "\"p", i, "\":{\"type\":\"string\",\"pattern\":\"^[a-z]{3,9}[0-9]+$\"}");
  }
  return schema + "}}";
}

TEST(GenerationFormat, EveryKindOfFormHolds) {
  RunningVerifier verifier(FormatConfig(), {});
  const auto text_of = [&](const v1::ResponseFormat& format) {
    const Output output = verifier.Generate(Formed(format, 1));
    EXPECT_TRUE(output.status.ok()) << output.status.error_message();
    EXPECT_EQ(output.samples[0].completion.finish_reason(), v1::FINISH_REASON_STOP);
    return output.samples[0].text;
  };
  v1::ResponseFormat format;
  format.set_json_schema(R"({"type":"object","properties":{"ok":{"type":"boolean"},"n":{"enum":[1,2]}},
                             "required":["ok","n"],"additionalProperties":false})");
  const auto json = nlohmann::json::parse(text_of(format), nullptr, false);
  EXPECT_TRUE(json.is_object() && json["ok"].is_boolean() && json["n"].is_number()) << json;
  format.set_regex("[0-9]{4}-[0-9]{2}");
  EXPECT_THAT(text_of(format), ::testing::MatchesRegex("[0-9]+-[0-9]+"));
  format.set_ebnf("root ::= \"<\" [a-c] [a-c] \">\"");
  EXPECT_THAT(text_of(format), ::testing::MatchesRegex("<[a-c][a-c]>"));
  format.mutable_choices()->add_texts("left");
  format.mutable_choices()->add_texts("right \"of\" it");
  EXPECT_THAT(text_of(format), ::testing::AnyOf("left", "right \"of\" it"));
  format.set_structural_tag(R"({"type":"structural_tag","format":{"type":"tag","begin":"<f>",
      "content":{"type":"json_schema","json_schema":{"enum":["x","y"]}},"end":"</f>"}})");
  EXPECT_THAT(text_of(format), ::testing::MatchesRegex("<f>\"[xy]\"</f>"));
  format.set_any_json(true);
  const Output any = verifier.Generate(Formed(format));
  EXPECT_TRUE(any.status.ok()) << any.status.error_message();
}

TEST(GenerationFormat, ABadFormIsRefusedByItsField) {
  RunningVerifier verifier(FormatConfig(), {});
  const auto error_of = [&](const v1::GenerateRequest& request) {
    const Output output = verifier.Generate(request);
    EXPECT_EQ(output.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return output.status.error_message();
  };
  v1::ResponseFormat format;
  EXPECT_THAT(error_of(Formed(format)), HasSubstr("response_format: expected one of its formats"));
  format.set_any_json(false);
  EXPECT_THAT(error_of(Formed(format)), HasSubstr("response_format.any_json: expected true"));
  format.set_regex("(a");
  EXPECT_THAT(error_of(Formed(format)), HasSubstr("response_format.regex: "));
  EXPECT_THAT(error_of(Formed(format)), HasSubstr("response_format.regex: "));  // from the cache
  format.set_ebnf("root ::= nobody");
  EXPECT_THAT(error_of(Formed(format)), HasSubstr("nobody"));
  format.set_ebnf("root ::= é");
  EXPECT_THAT(error_of(Formed(format)), HasSubstr("\ufffd")) << "the compiler quotes the first byte of é";
  format.mutable_choices();
  EXPECT_THAT(error_of(Formed(format)), HasSubstr("response_format.choices.texts: expected at least one text"));
  format.mutable_choices()->add_texts("");
  EXPECT_THAT(error_of(Formed(format)), HasSubstr("no empty one"));
  format.set_any_json(true);
  v1::GenerateRequest endless = Formed(format);
  endless.mutable_stopping()->set_ignore_eos(true);
  EXPECT_THAT(error_of(endless), HasSubstr("stopping.ignore_eos: expected false"));
}

TEST(GenerationFormat, AFormThatCostsTooMuchEndsSoonAndOthersGoOn) {
  Config config = FormatConfig();
  config.grammars.limits.max_time = absl::Milliseconds(300);
  RunningVerifier verifier(config, {});
  v1::ResponseFormat hostile, good;
  hostile.set_json_schema(HostileSchema());
  good.set_regex("[0-9]");
  Output refused;
  std::thread other([&] { refused = verifier.Generate(Formed(hostile)); });
  v1::GenerateRequest plain = Formed(good);
  plain.clear_response_format();
  EXPECT_TRUE(verifier.Generate(plain).status.ok());
  other.join();
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(testing::ReasonOf(refused.status), "FORMAT_TOO_COSTLY");
  EXPECT_TRUE(verifier.Generate(Formed(good)).status.ok());
}

TEST(GenerationFormat, TooManyFormsAtATimeAreRefused) {
  Config config = FormatConfig();
  config.max_compilations = 1;
  config.grammars.limits.max_time = absl::Seconds(1);
  RunningVerifier verifier(config, {});
  const auto is_full = [](const Output& output) { return testing::ReasonOf(output.status) == "GRAMMARS_FULL"; };
  std::thread busy([&] {  // takes the one place for a second; a probe may have it at first
    v1::ResponseFormat hostile;
    hostile.set_json_schema(HostileSchema());
    while (is_full(verifier.Generate(Formed(hostile)))) {
    }
  });
  bool was_full = false;
  for (int i = 1; i <= 1000 && !was_full; ++i) {
    v1::ResponseFormat probe;
    probe.set_regex("[0-9]{" + std::to_string(i) + "}");
    const Output output = verifier.Generate(Formed(probe));
    was_full = is_full(output);
    EXPECT_TRUE(was_full || output.status.ok()) << output.status.error_message();
    EXPECT_EQ(testing::FindDetail<google::rpc::RetryInfo>(output.status).has_value(), was_full);
  }
  busy.join();
  EXPECT_TRUE(was_full);
}

// A form without an end keeps its compiled form for as long as its request runs.
TEST(GenerationFormat, AFormIsRefusedWhileRequestsHoldTooMuch) {
  Config config = FormatConfig();
  config.grammars.max_cache_bytes = 0;
  config.grammars.max_held_bytes = 1;
  RunningVerifier verifier(config, {});
  v1::ResponseFormat endless, evicting, other;
  endless.set_ebnf("root ::= [a-z] root");
  evicting.set_regex("[0-9]");
  other.set_regex("[0-9]{2}");
  v1::GenerateRequest long_request = Formed(endless);
  long_request.mutable_sampling()->set_n(16);
  long_request.mutable_stopping()->set_max_tokens(1000);
  grpc::ClientContext context;
  const auto reader = verifier.stub().Generate(&context, long_request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_TRUE(verifier.Generate(Formed(evicting)).status.ok());
  const Output refused = verifier.Generate(Formed(other));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(testing::ReasonOf(refused.status), "GRAMMARS_FULL");
  EXPECT_TRUE(testing::FindDetail<google::rpc::RetryInfo>(refused.status).has_value());
  context.TryCancel();
  while (reader->Read(&response)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED) << "it ran to this point";
  EXPECT_TRUE(verifier.WaitUntil([](const EngineStats& stats) { return stats.num_running == 0; }));
  Output served;
  for (int i = 0; i < 1000 && !(served = verifier.Generate(Formed(other))).status.ok(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(served.status.ok()) << served.status.error_message();
}

TEST(GenerationFormat, ARequestThatIsAbortedWhileItsFormWaitsEndsAtOnce) {
  Config config = FormatConfig();
  config.grammars.limits.max_time = absl::Seconds(3);
  RunningVerifier verifier(config, {});
  v1::ResponseFormat hostile, good;
  hostile.set_json_schema(HostileSchema());
  good.set_regex("[0-9]");
  std::atomic<bool> is_compiling = true;
  std::thread busy([&] {
    verifier.Generate(Formed(hostile));
    is_compiling = false;
  });
  absl::SleepFor(absl::Milliseconds(500));  // until the compiler has begun
  Output output;
  std::thread waiting([&] {
    v1::GenerateRequest request = Formed(good);
    request.set_request_id("waits");
    request.mutable_sampling()->set_n(2);
    output = verifier.Generate(request);
  });
  absl::SleepFor(absl::Milliseconds(200));  // until the request is parsed
  grpc::ClientContext context;
  v1::AbortRequest abort;
  abort.set_request_id("waits");
  v1::AbortResponse response;
  EXPECT_TRUE(verifier.stub().Abort(&context, abort, &response).ok());
  EXPECT_TRUE(response.aborted());
  waiting.join();
  EXPECT_TRUE(is_compiling) << "the aborted request waited for its form";
  EXPECT_TRUE(output.status.ok()) << output.status.error_message();
  for (const testing::Sample& sample : output.samples) {
    EXPECT_EQ(sample.completion.finish_reason(), v1::FINISH_REASON_ABORT);
    EXPECT_GT(sample.completion.usage().prompt_tokens(), 0);
    EXPECT_EQ(sample.completion.usage().completion_tokens(), 0);
  }
  busy.join();
}

TEST(GenerationFormat, AFaultOfTheCompilerIsOursAndPasses) {
  Config config = FormatConfig();
  config.grammars.program = "/nowhere/foretoken";
  RunningVerifier verifier(config, {});
  v1::ResponseFormat format;
  format.set_regex("[0-9]");
  const Output output = verifier.Generate(Formed(format));
  EXPECT_EQ(output.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(output.status.error_message(), ::testing::Not(HasSubstr("nowhere")));  // the log has it
  EXPECT_TRUE(testing::FindDetail<google::rpc::RetryInfo>(output.status).has_value());
}

TEST(GenerationFormat, TheGrammarIsAProposerThatRequestsCanName) {
  RunningVerifier verifier(FormatConfig(), {});
  v1::ResponseFormat format;
  format.set_json_schema(R"({"const":"a constant text of many words"})");
  v1::GenerateRequest request = Formed(format);
  request.mutable_speculation()->add_proposers("grammar");
  const Output output = verifier.Generate(request);
  ASSERT_TRUE(output.status.ok()) << output.status.error_message();
  const v1::Usage& usage = output.samples[0].completion.usage();
  ASSERT_EQ(usage.proposers_size(), 1);
  EXPECT_EQ(usage.proposers(0).proposer(), "grammar");
  EXPECT_GT(usage.proposers(0).accepted_tokens(), 0);
  EXPECT_LT(usage.steps(), usage.completion_tokens());
  request.clear_response_format();
  EXPECT_THAT(verifier.Generate(request).status.error_message(), HasSubstr("speculation.proposers[0]"));
}

}  // namespace
}  // namespace foretoken::verifier
