// SPDX-License-Identifier: Apache-2.0
// `foretoken generate` as a user runs it, against the fake service. If these tests fail, the command sends a wrong
// request, prints wrong output or ends with a wrong exit code.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/proto_json.h"
#include "nlohmann/json.hpp"
#include "tests/client/commands/run_foretoken.h"
#include "tests/testing/fakes/fake_generation_service.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::client {
namespace {

using foretoken::testing::FakeGenerationService;
using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ForetokenGenerate, PrintsTextOnStandardOutputAndOneLineOfNumbersOnStandardError) {
  FakeGenerationService service;
  EXPECT_EQ(RunAgainst(service, "generate", "--max_tokens=5 abc 2>/dev/null").out, "abcab\n");
  const Outcome both = RunAgainst(service, "generate", "--max_tokens=5 abc 2>&1");
  EXPECT_EQ(both.exit_code, 0);
  EXPECT_THAT(both.out, StartsWith("abcab\n5 tokens, "));
  EXPECT_THAT(both.out, HasSubstr("1.67 tokens per step, first token after "));
  EXPECT_THAT(both.out, HasSubstr("ngram accepted 2 of 5\n"));
}

TEST(ForetokenGenerate, ColoursAcceptedGuesses) {
  FakeGenerationService service;
  EXPECT_EQ(RunAgainst(service, "generate", "--max_tokens=3 --color=always abc 2>/dev/null").out,
            "a\x1b[32mb\x1b[0mc\n");
}

TEST(ForetokenGenerate, LeavesEveryFieldUnsetWhoseFlagIsNotGiven) {
  FakeGenerationService service;
  ASSERT_EQ(RunAgainst(service, "generate", "abc 2>&1").exit_code, 0);
  GenerateRequest expected;
  expected.set_text("abc");
  expected.mutable_sampling();
  expected.mutable_stopping();
  expected.mutable_output();
  expected.mutable_speculation();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(service.requests().at(0), expected))
      << service.requests().at(0).DebugString();
}

TEST(ForetokenGenerate, SetsEveryFieldWhoseFlagIsGiven) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(
      service, "generate",
      "--request_id=r --model=m --tenant=t --priority=-2 --add_special_tokens=false --parse_special_tokens=true "
      "--truncate_prompt_tokens=9 --temperature=0 --top_k=0 --top_p=0.5 --min_p=0.25 --repetition_penalty=1.5 "
      "--presence_penalty=-0.5 --frequency_penalty=0.75 --logit_bias=3=-1.5,4=2 "
      "--allowed_token_ids=9,8 --banned_token_ids=8 --numerics_fingerprint='these bits' --seed=18446744073709551615 "
      "--n=2 "
      "--max_tokens=4 --min_tokens=0 --stop='[\"a,b\", \"\\n\"]' --stop_token_ids=5,6 --ignore_eos=true "
      "--include_stop_string=false --logprobs=0 --prompt_logprobs=3 --echo=true --skip_special_tokens=false "
      "--speculation=off --proposers=ngram,draft --max_tree_nodes=0 --prediction='a b' --verification=keyed_draw "
      "--prompt_tokens=7,8 2>&1");
  ASSERT_EQ(service.requests().size(), 1) << outcome.out;
  const GenerateRequest request = service.requests()[0];
  const nlohmann::ordered_json expected = nlohmann::ordered_json::parse(R"({
    "request_id": "r", "model": "m", "tenant": "t", "priority": -2, "tokens": {"ids": [7, 8]},
    "add_special_tokens": false, "parse_special_tokens": true, "truncate_prompt_tokens": 9,
    "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 0.5, "min_p": 0.25, "repetition_penalty": 1.5,
                 "presence_penalty": -0.5, "frequency_penalty": 0.75, "logit_bias": {"3": -1.5, "4": 2.0},
                 "allowed_token_ids": [9, 8], "banned_token_ids": [8],
                 "seed": "18446744073709551615", "n": 2},
    "stopping": {"max_tokens": 4, "min_tokens": 0, "stop_strings": ["a,b", "\n"], "stop_token_ids": [5, 6],
                 "ignore_eos": true, "include_stop_string": false},
    "output": {"logprobs": 0, "prompt_logprobs": 3, "echo": true, "skip_special_tokens": false},
    "speculation": {"mode": "SPECULATION_MODE_OFF", "proposers": ["ngram", "draft"], "max_tree_nodes": 0,
                    "prediction_text": "a b"},
    "verification": "VERIFICATION_RULE_KEYED_DRAW", "expected_numerics_fingerprint": "these bits"})");
  EXPECT_EQ(nlohmann::json(ToJson(request)), nlohmann::json(expected));
}

TEST(ForetokenGenerate, AsksForAFormOfTheOutput) {
  const std::string file = ::testing::TempDir() + "/form.txt";
  std::ofstream(file) << "root ::= \"a\"";
  const std::pair<std::string, std::string> cases[] = {
      {"--json_schema='{\"type\":\"object\"}'", R"({"json_schema": "{\"type\":\"object\"}"})"},
      {"--any_json", R"({"any_json": true})"},
      {"--regex='[0-9]+'", R"({"regex": "[0-9]+"})"},
      {"--ebnf=@" + file, R"({"ebnf": "root ::= \"a\""})"},
      {"--choices='[\"yes\", \"no\"]'", R"({"choices": {"texts": ["yes", "no"]}})"},
      {"--structural_tag='{}'", R"({"structural_tag": "{}"})"},
  };
  for (const auto& [flag, expected] : cases) {
    FakeGenerationService service;
    const Outcome outcome = RunAgainst(service, "generate", flag + " abc 2>&1");
    ASSERT_EQ(service.requests().size(), 1) << outcome.out;
    EXPECT_EQ(nlohmann::json(ToJson(service.requests()[0]))["response_format"], nlohmann::json::parse(expected));
  }
  FakeGenerationService service;
  EXPECT_THAT(RunAgainst(service, "generate", "--any_json --regex=a abc 2>&1").out,
              HasSubstr("one form of the output"));
  EXPECT_THAT(RunAgainst(service, "generate", "--choices=yes abc 2>&1").out,
              HasSubstr("--choices: expected a JSON list"));
  EXPECT_THAT(RunAgainst(service, "generate", "--ebnf=@/nowhere abc 2>&1").out, HasSubstr("/nowhere"));
}

TEST(ForetokenGenerate, TakesFlagsAsPeopleTypeThem) {
  FakeGenerationService service;
  ASSERT_EQ(RunAgainst(service, "generate",
                       "--echo --ignore-eos --no-include-stop-string --noskip_special_tokens --max-tokens 3 "
                       "--add-special-tokens=true --parse-special-tokens false --json abc 2>&1")
                .exit_code,
            0);
  const GenerateRequest request = service.requests().at(0);
  EXPECT_EQ(request.text(), "abc");
  EXPECT_TRUE(request.output().echo());
  EXPECT_TRUE(request.stopping().ignore_eos());
  EXPECT_TRUE(request.stopping().has_include_stop_string() && !request.stopping().include_stop_string());
  EXPECT_TRUE(request.output().has_skip_special_tokens() && !request.output().skip_special_tokens());
  EXPECT_EQ(request.stopping().max_tokens(), 3);
  EXPECT_TRUE(request.add_special_tokens());
  EXPECT_TRUE(request.has_parse_special_tokens() && !request.parse_special_tokens());
}

TEST(ForetokenGenerate, NamesAnUnknownFlagAndAFlagOfSimilarSpelling) {
  const Outcome outcome = RunShell("generate --max-token=3 abc 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "foretoken generate: unknown flag --max-token; is it --max_tokens?\n");
}

TEST(ForetokenGenerate, TakesUnquotedWordsAsOnePrompt) {
  FakeGenerationService service;
  ASSERT_EQ(RunAgainst(service, "generate", "Once upon --max_tokens=3 a time 2>&1").exit_code, 0);
  EXPECT_EQ(service.requests().at(0).text(), "Once upon a time");
  ASSERT_EQ(RunAgainst(service, "bench", "Once upon a time 2>&1").exit_code, 0);
  EXPECT_EQ(service.requests().at(1).text(), "Once upon a time");
  ASSERT_EQ(RunAgainst(service, "generate", "-- --no flag 2>&1").exit_code, 0);
  EXPECT_EQ(service.requests().at(2).text(), "--no flag");
}

TEST(ForetokenGenerate, TakesAnHttpAddress) {
  const FakeGenerationService service;
  EXPECT_EQ(
      RunShell(absl::StrCat("generate --target=http://", service.target(), "/ --max_tokens=2 abc 2>/dev/null")).out,
      "ab\n");
  EXPECT_EQ(
      RunShell(absl::StrCat("generate --target=grpc://", service.target(), " --max_tokens=2 abc 2>/dev/null")).out,
      "ab\n");
  const Outcome encrypted =
      RunShell(absl::StrCat("generate --connect_timeout=300ms --target=https://", service.target(), " abc 2>&1"));
  EXPECT_EQ(encrypted.exit_code, 1);
  EXPECT_THAT(encrypted.out, HasSubstr("no server answers"));
  EXPECT_THAT(encrypted.out, HasSubstr("is foretoken_verifier running there, with TLS? See --target, --tls_ca, "
                                       "--tls_certificate, --tls_key and --connect_timeout"));
}

TEST(ForetokenGenerate, SendsNoTokenInPlainTextToAnotherMachine) {
  const testing::TempDir directory;
  const std::string file = directory.path() + "/token";
  std::ofstream(file) << "0123456789abcdef\n";
  const Outcome outcome =
      RunShell(absl::StrCat("generate --target=verifier.example:50051 --token_file=", file, " abc 2>&1"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("--token_file: anybody on the way could read the token"));
}

TEST(ForetokenGenerate, SaysThatItConnectsAndThatNoServerAnswers) {
  std::string target;
  {
    const FakeGenerationService service;
    target = service.target();
  }
  const Outcome outcome = RunShell(absl::StrCat("generate --target=", target, " --connect-timeout=400ms abc 2>&1"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, StartsWith(absl::StrCat("foretoken: connecting to ", target, ", for at most 400ms ...\n")));
  EXPECT_THAT(outcome.out, HasSubstr(absl::StrCat("UNAVAILABLE: no server answers at ", target, " within 400 ms (")));
  EXPECT_THAT(outcome.out, HasSubstr("Connection refused): is foretoken_verifier running there, without TLS? "
                                     "See --target, --tls_ca and --connect_timeout"));
  EXPECT_THAT(RunShell(absl::StrCat("generate --target=", target, " --connect_timeout=50us abc 2>&1")).out,
              HasSubstr(" within 1 ms ("));
  EXPECT_THAT(RunShell("help generate").out, HasSubstr("--connect_timeout (default 3s)"));
}

TEST(ForetokenGenerate, TakesAPlainTextAsTheOneStopString) {
  FakeGenerationService service;
  ASSERT_EQ(RunAgainst(service, "generate", "--stop='x,y' abc 2>&1").exit_code, 0);
  EXPECT_EQ(service.requests().at(0).stopping().stop_strings_size(), 1);
  EXPECT_EQ(service.requests().at(0).stopping().stop_strings(0), "x,y");
}

TEST(ForetokenGenerate, SaysHowATextThatBeginsLikeAListStopsTheOutput) {
  FakeGenerationService service;
  EXPECT_THAT(RunAgainst(service, "generate", "--stop='[' abc 2>&1").out,
              HasSubstr("--stop: expected a JSON list of texts (a text that begins with [ must stand in such a list)"));
  ASSERT_EQ(RunAgainst(service, "generate", "--stop='[\"[\"]' abc 2>&1").exit_code, 0);
  EXPECT_EQ(service.requests().at(0).stopping().stop_strings(0), "[");
}

TEST(ForetokenGenerate, NamesTheFlagThatItCannotRead) {
  const FakeGenerationService service;
  for (const std::string& flag : std::vector<std::string>{
           "--logit_bias=x", "--logit_bias=1", "--stop_token_ids=x", "--allowed_token_ids=1,-2", "--banned_token_ids=x",
           "--stop='[1]'", "--stop='['", "--speculation=maybe", "--verification=none", "--color=blue", "--timeout=-1s",
           "--connect_timeout=0s", "--prediction_file=/nowhere", "--temperature=warm", "--max_tokens=-1"}) {
    const Outcome outcome = RunAgainst(service, "generate", absl::StrCat(flag, " abc 2>&1"));
    EXPECT_EQ(outcome.exit_code, 1) << flag;
    EXPECT_THAT(outcome.out, HasSubstr(flag.substr(2, flag.find('=') - 2)));
  }
  EXPECT_TRUE(service.requests().empty());
}

TEST(ForetokenGenerate, ReadsAPredictionFromAFile) {
  FakeGenerationService service;
  const testing::TempDir dir;
  std::ofstream(dir.path() + "/edited.py") << "x = 1\n";
  ASSERT_EQ(
      RunAgainst(service, "generate", absl::StrCat("--prediction_file=", dir.path(), "/edited.py abc 2>&1")).exit_code,
      0);
  EXPECT_EQ(service.requests().at(0).speculation().prediction_text(), "x = 1\n");
  const Outcome both = RunAgainst(service, "generate", "--prediction=x --prediction_file=y abc 2>&1");
  EXPECT_EQ(both.exit_code, 1);
  EXPECT_THAT(both.out, HasSubstr("both --prediction and --prediction_file"));
}

TEST(ForetokenGenerate, ReadsThePromptFromStandardInputOrAFile) {
  FakeGenerationService service;
  const testing::TempDir dir;
  const std::string path = dir.Write("prompt.txt", "from file");
  const std::string flags = "--max_tokens=3 2>&1 ";
  EXPECT_THAT(RunAgainst(service, "generate", flags + "<" + path).out, StartsWith("fro\n"));
  EXPECT_THAT(RunAgainst(service, "generate", flags + "--prompt_file=" + path).out, StartsWith("fro\n"));
  EXPECT_THAT(RunAgainst(service, "generate", flags + "--prompt_file=" + path + " abc").out,
              HasSubstr("expected one prompt"));
  EXPECT_THAT(RunAgainst(service, "generate", flags + "--prompt_tokens=x").out, HasSubstr("--prompt_tokens"));
}

// The second reader would find nothing, and nobody would see it.
TEST(ForetokenGenerate, ReadsStandardInputOnce) {
  FakeGenerationService service;
  const testing::TempDir dir;
  const std::string input = " 2>&1 <" + dir.Write("input", "from file");
  const struct {
    const char* command;
    const char* flags;
    const char* message;
  } kTwice[] = {
      {"generate", "--prediction_file=-",
       "--prompt_file: expected a file or a prompt argument, got standard input, which is read for --prediction_file"},
      {"generate", "--ebnf=@- --prompt_file=-",
       "--prompt_file: expected a file or a prompt argument, got standard input, which is read for --ebnf"},
      {"bench", "--structural_tag=@- --prompt_file=-",
       "--prompt_file: expected a file or a prompt argument, got standard input, which is read for --structural_tag"},
      {"generate", "--json_schema=@- --prediction_file=- abc",
       "--prediction_file: expected a file, got standard input, which is read for --json_schema"}};
  for (const auto& [command, flags, message] : kTwice) {
    const Outcome outcome = RunAgainst(service, command, flags + input);
    EXPECT_EQ(outcome.exit_code, 1) << flags;
    EXPECT_EQ(outcome.out, absl::StrCat("foretoken: INVALID_ARGUMENT: ", message, "\n"));
  }
  EXPECT_TRUE(service.requests().empty());
  EXPECT_EQ(RunAgainst(service, "generate", "--prediction_file=- abc" + input).exit_code, 0);
  EXPECT_EQ(service.requests().at(0).speculation().prediction_text(), "from file");
}

TEST(ForetokenGenerate, PrintsSamplesOneAfterAnother) {
  FakeGenerationService service;
  EXPECT_EQ(RunAgainst(service, "generate", "--n=2 --max_tokens=3 abc 2>/dev/null").out,
            "--- sample 0\nabc\n--- sample 1\nabc\n");
}

// Sends a piece of a sample, and the sample's end.
void WriteSample(uint32_t index, const std::string& text, bool is_last,
                 const std::function<bool(const GenerateResponse&)>& write) {
  GenerateResponse response;
  response.set_sample_index(index);
  response.set_text(text);
  if (is_last) response.mutable_completion()->set_finish_reason(foretoken::v1::FINISH_REASON_LENGTH);
  write(response);
}

TEST(ForetokenGenerate, PrintsSamplesInOrderWhicheverEndsFirst) {
  FakeGenerationService service;
  service.set_script([](auto&, auto&, auto& write) {
    WriteSample(2, "third", /*is_last=*/true, write);
    WriteSample(1, "sec", /*is_last=*/false, write);
    WriteSample(0, "fi", /*is_last=*/false, write);
    WriteSample(1, "ond", /*is_last=*/true, write);
    WriteSample(0, "rst", /*is_last=*/true, write);
    return grpc::Status::OK;
  });
  EXPECT_EQ(RunAgainst(service, "generate", "--n=3 abc 2>/dev/null").out,
            "--- sample 0\nfirst\n--- sample 1\nsecond\n--- sample 2\nthird\n");
}

TEST(ForetokenGenerate, PrintsTheTextOfEverySampleBeforeAnError) {
  FakeGenerationService service;
  service.set_script([](auto&, auto&, auto& write) {
    WriteSample(1, "sec", /*is_last=*/false, write);
    WriteSample(0, "fi", /*is_last=*/false, write);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  EXPECT_EQ(RunAgainst(service, "generate", "--n=2 abc 2>/dev/null").out, "--- sample 0\nfi\n--- sample 1\nsec\n");
}

TEST(ForetokenGenerate, PrintsLogProbabilitiesBesideTheNumbers) {
  FakeGenerationService service;
  service.set_script([](auto&, auto&, auto& write) {
    GenerateResponse response;
    response.set_text("ab");
    for (const uint32_t id : {'a', 'b'}) {
      response.add_token_ids(id);
      auto& logprobs = *response.add_logprobs();
      logprobs.mutable_token()->set_token_id(id);
      logprobs.mutable_token()->set_logprob(-0.5F);
      auto& top = *logprobs.add_top();
      top.set_token_id('z');
      top.set_logprob(-0.25F);
    }
    response.mutable_completion()->set_finish_reason(foretoken::v1::FINISH_REASON_LENGTH);
    write(response);
    return grpc::Status::OK;
  });
  EXPECT_EQ(RunAgainst(service, "generate", "--logprobs=1 abc 2>/dev/null").out, "ab\n");
  EXPECT_THAT(RunAgainst(service, "generate", "--logprobs=1 abc 2>&1 >/dev/null").out,
              StartsWith("log-probabilities of the output, and of the likeliest tokens:\n"
                         "  \"a\"                        -0.500  \"z\" -0.250\n"
                         "  \"b\"                        -0.500  \"z\" -0.250\n"));
}

TEST(ForetokenGenerate, PrintsJson) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "generate", "--json --max_tokens=3 abc");
  const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.out;
  EXPECT_EQ(json["request_id"], "fake-1");
  EXPECT_EQ(json["samples"][0]["text"], "abc");
  EXPECT_EQ(json["samples"][0]["token_ids"], nlohmann::json({'a', 'b', 'c'}));
  EXPECT_EQ(json["samples"][0]["speculated"], nlohmann::json({false, true, false}));
  EXPECT_EQ(json["samples"][0]["completion"]["finish_reason"], "FINISH_REASON_LENGTH");
  EXPECT_EQ(json["stats"]["num_tokens"], 3);
}

TEST(ForetokenGenerate, ReportsTheServersErrorAndExitsWithOne) {
  FakeGenerationService service;
  service.set_script([](auto&, auto&, auto&) { return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"); });
  const Outcome outcome = RunAgainst(service, "generate", "abc 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "foretoken: RESOURCE_EXHAUSTED: full\n") << "no text, so no line";

  // Some terminals take the byte 0x9b for ESC [, and gRPC carries any bytes.
  service.set_script([](auto&, auto&, auto&) { return grpc::Status(grpc::StatusCode::INTERNAL, "\x9b[2J"); });
  EXPECT_EQ(RunAgainst(service, "generate", "abc 2>&1 >/dev/null").out, "foretoken: INTERNAL: \ufffd[2J\n");
}

TEST(ForetokenGenerate, PrintsAnOutputThatTheServerEndsEarlyAndExitsWithOne) {
  FakeGenerationService service;
  service.set_script(testing::CutOff(foretoken::v1::FINISH_REASON_SHUTDOWN));
  const Outcome cut_off = RunAgainst(service, "generate", "abc 2>&1");
  EXPECT_EQ(cut_off.exit_code, 1);
  EXPECT_THAT(cut_off.out, StartsWith("ab\n2 tokens, "));
  EXPECT_THAT(cut_off.out, HasSubstr("foretoken: UNAVAILABLE: the server shut down before the end of the output\n"));

  service.set_script([](auto&, auto&, auto& write) {
    WriteSample(0, "fi", /*is_last=*/false, write);
    return grpc::Status(grpc::StatusCode::CANCELLED, "gone");
  });
  const Outcome cancelled = RunAgainst(service, "generate", "abc 2>&1");
  EXPECT_EQ(cancelled.exit_code, 1) << "130 is for Ctrl-C alone";
  EXPECT_EQ(cancelled.out, "fi\nforetoken: UNAVAILABLE: the server cancelled the call: gone\n");
}

TEST(ForetokenGenerate, CancelsTheCallAtAnInterruptAndExitsWith130) {
  FakeGenerationService service;
  absl::Notification began;
  absl::Notification cancelled;
  service.set_script([&](auto&, grpc::ServerContext& context, auto& write) {
    GenerateResponse response;
    response.add_token_ids(7);
    write(response);
    began.Notify();
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    cancelled.Notify();
    return grpc::Status::CANCELLED;
  });
  std::string target = absl::StrCat("--target=", service.target());
  std::string arguments[] = {FORETOKEN_BINARY, "generate", target, "abc"};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), arguments[3].data(), nullptr};
  pid_t pid = 0;
  ASSERT_EQ(posix_spawn(&pid, argv[0], nullptr, nullptr, argv, environ), 0);
  began.WaitForNotification();
  kill(pid, SIGINT);
  int wait_status = 0;
  ASSERT_EQ(waitpid(pid, &wait_status, 0), pid);
  EXPECT_TRUE(WIFEXITED(wait_status));
  EXPECT_EQ(WEXITSTATUS(wait_status), 130);
  EXPECT_TRUE(cancelled.WaitForNotificationWithTimeout(absl::Seconds(10)));
}

// `timeout` signals a program, and then its group. The program still ends in order.
TEST(ForetokenGenerate, SignalsThatComeTogetherAreOneInterrupt) {
  const Outcome outcome = RunShell(
      "generate --target=localhost:1 --connect_timeout=10m abc 2>&1 & pid=$!; sleep 1; kill -INT $pid; "
      "kill -TERM $pid; wait $pid; echo \"code $?\"");
  EXPECT_THAT(outcome.out, HasSubstr("code 130"));
  EXPECT_THAT(outcome.out, HasSubstr("interrupted")) << "as at an end in order";
}

// As in `timeout 1 foretoken generate | less`.
TEST(ForetokenGenerate, ASignalEndsTheWaitForAReader) {
  if (absl::string_view(FORETOKEN_SANITIZER) == "thread") {
    GTEST_SKIP() << "_exit of ThreadSanitizer flushes standard output, and waits for the thread that writes to it";
  }
  FakeGenerationService service;
  service.set_script([](auto&, auto&, auto& write) {
    GenerateResponse response;
    response.set_text(std::string(1 << 20, 'x'));
    while (write(response)) continue;
    return grpc::Status::CANCELLED;
  });
  const testing::TempDir dir;
  const std::string code = dir.path() + "/code";
  const Outcome outcome = RunShell(
      absl::StrCat("--version >/dev/null; (", FORETOKEN_BINARY, " generate --target=", service.target(),
                   " abc 2>/dev/null & pid=$!; sleep 2; kill -TERM $pid; wait $pid; echo \"code $?\" >", code, ") | ",
                   "for i in $(seq 100); do [ -s ", code, " ] && cat ", code, " && break; sleep 0.1; done"));
  EXPECT_EQ(outcome.out, "code 130\n");
}

TEST(ForetokenGenerate, AnInterruptEndsTheWaitForAServer) {
  for (const char* command : {"generate", "compare", "explain", "bench"}) {
    std::string arguments[] = {FORETOKEN_BINARY, command, "--target=localhost:1", "--connect_timeout=10m", "abc"};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                    arguments[3].data(), arguments[4].data(), nullptr};
    pid_t pid = 0;
    ASSERT_EQ(posix_spawn(&pid, argv[0], nullptr, nullptr, argv, environ), 0);
    absl::SleepFor(absl::Seconds(1));  // so that it waits for the connection
    kill(pid, SIGTERM);
    const absl::Time begin = absl::Now();
    int wait_status = 0;
    ASSERT_EQ(waitpid(pid, &wait_status, 0), pid);
    EXPECT_LT(absl::Now() - begin, absl::Seconds(30)) << command;
    EXPECT_TRUE(WIFEXITED(wait_status)) << command;
    EXPECT_EQ(WEXITSTATUS(wait_status), 130) << command;
  }
}

}  // namespace
}  // namespace foretoken::client
