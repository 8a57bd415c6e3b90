// SPDX-License-Identifier: Apache-2.0
// The `foretoken` binary as a user runs it, against the fake service: all commands but generate. If these tests fail, a
// command prints wrong output, sends a wrong request or ends with a wrong exit code.
#include "client/commands/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/proto_json.h"
#include "common/base/mapped_file.h"
#include "common/base/version.h"
#include "nlohmann/json.hpp"
#include "tests/client/commands/run_foretoken.h"
#include "tests/testing/fakes/fake_generation_service.h"
#include "tests/testing/paths.h"
#include "tests/testing/step_reports.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::client {
namespace {

using foretoken::testing::FakeGenerationService;
using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Reports of a prompt of two chunks, of a step with a tree and of a plain step.
grpc::Status ThreeSteps(const GenerateRequest& request, grpc::ServerContext& /*context*/,
                        const std::function<bool(const GenerateResponse&)>& write) {
  GenerateResponse first;
  first.set_request_id("fake-1");
  *first.add_steps() = testing::MakeReport(11, 341, "");
  GenerateResponse rest;
  rest.set_text("abzw");
  *rest.add_steps() = testing::BranchingReport();
  *rest.add_steps() = testing::MakeReport(13, 344, "w");
  if (!request.speculation().report_steps()) return {grpc::StatusCode::INVALID_ARGUMENT, "report_steps"};
  rest.mutable_completion()->set_finish_reason(foretoken::v1::FINISH_REASON_LENGTH);
  return write(first) && write(rest) ? grpc::Status::OK : grpc::Status::CANCELLED;
}

TEST(ForetokenExplain, PrintsTheStepsOfOneRequest) {
  FakeGenerationService service;
  service.set_script(ThreeSteps);
  const Outcome outcome = RunAgainst(service, "explain", "--max_tokens=4 --speculation=auto abc 2>&1");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, R"(✓ accepted  ✗ rejected  ○ not reached  ! right, but had no row  · had no row
numbers: the path chance of a node, as its proposers state it → as calibrated

step 11 at 341 · 1 row of 1 sequence · 5.00 ms, predicted 5.00 · host 0.25
  1 token of the prompt

step 12 at 341 · 9 rows of 1 sequence · 5.00 ms, predicted 5.00 · host 0.25 · waited 0.40 · curious
  ngram 5 nodes · draft 4 nodes, 2 tokens late
  5 of 8 nodes planned: 560 tokens/s expected, 250 without trees
  ├─ ✓ "a"                                                0.800 → 0.750  ngram draft
  │  ├─ ✓ "b"                                             0.600 → 0.500  draft
  │  │  ├─ ✗ "c"                                          0.300 → 0.200  draft
  │  │  └─ ! "z"                                          0.120 → 0.100  draft
  │  └─ ✗ "x"                                             0.200 → 0.250  ngram
  │     ○ "y"                                             0.100 → 0.100  ngram
  └─ · "q"                                                0.100 → 0.050  ngram
     · "z"                                                0.050 → 0.020  ngram
  emitted 3, expected 2.80: "ab" + "z"

step 13 at 344 · 1 row of 1 sequence · 5.00 ms, predicted 5.00 · host 0.25
  no guesses
  emitted 1, expected 1.00: "w"

4 tokens in 2 steps: 2.00 a step, expected 1.90; 1 more for the prompt
16.2 ms: 83.6 % forward, 9.3 % draw, 4.6 % host, 2.5 % waiting; steps took 1.00 x the predicted time
accepted at depth 1: 1 of 1, 2: 1 of 1, 3: 0 of 1
5 of 8 guessed nodes had a row; 1 of the others would have been right

proposer           guessed   planned  accepted  late trees
draft                    4         3         2           1
ngram                    5         3         1           0
)");
  EXPECT_EQ(service.requests().at(0).stopping().max_tokens(), 4);
  EXPECT_EQ(service.requests().at(0).speculation().mode(), foretoken::v1::SPECULATION_MODE_AUTO);
}

TEST(ForetokenExplain, ColoursOnRequestAndHidesNodesWithoutARow) {
  FakeGenerationService service;
  service.set_script(ThreeSteps);
  const Outcome outcome = RunAgainst(service, "explain", "--color=always --unplanned_nodes=0 abc");
  EXPECT_THAT(outcome.out, HasSubstr("\x1b[32m✓ \"a\"\x1b[0m"));
  EXPECT_THAT(outcome.out, HasSubstr("… 2 more had no row"));
  EXPECT_THAT(RunAgainst(service, "explain", "--unplanned_nodes=-1 abc 2>&1").out,
              HasSubstr("--unplanned_nodes: expected at least 0, got -1"));
}

TEST(ForetokenExplain, SaysHowToAllowStepReports) {
  FakeGenerationService service;
  service.set_script([](const auto&, auto&, const auto&) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "speculation.report_steps: expected false; got true");
  });
  const Outcome outcome = RunAgainst(service, "explain", "abc 2>&1");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("speculation.report_steps: expected false; got true\n"
                                     "To explain requests, start foretoken_verifier with --allow_step_reports.\n"));
}

TEST(ForetokenExplain, ExplainsWhatIsThereIfTheServerNoLongerKnowsItsTokens) {
  FakeGenerationService service;
  service.set_script([](const auto&, auto&, const auto& write) {
    foretoken::v1::GenerateResponse response;
    response.add_token_ids(500);  // that the fake does not detokenise
    *response.add_steps() = testing::MakeReport(13, 344, "w");
    response.mutable_steps(0)->set_token_ids(0, 500);
    write(response);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  const Outcome outcome = RunAgainst(service, "explain", "abc 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("emitted 1, expected 1.00: \"#500\""));
  EXPECT_THAT(outcome.out, HasSubstr("foretoken: UNAVAILABLE: gone\n"));
}

TEST(ForetokenExplain, PrintsTheReportsAsJson) {
  FakeGenerationService service;
  service.set_script(ThreeSteps);
  const auto json = nlohmann::json::parse(RunAgainst(service, "explain", "--json abc").out, nullptr, false);
  EXPECT_EQ(json["request_id"], "fake-1");
  ASSERT_EQ(json["samples"][0]["steps"].size(), 3);
  EXPECT_EQ(json["samples"][0]["steps"][1], nlohmann::json(ToJson(testing::BranchingReport())));
}

TEST(ForetokenTokenize, PrintsIdsAndBytes) {
  FakeGenerationService service;
  EXPECT_EQ(RunAgainst(service, "tokenize", "'a\"' 2>/dev/null").out, "97\t\"a\"\n34\t\"\\\"\"\n");
  EXPECT_EQ(RunAgainst(service, "tokenize", "'\u009b' 2>/dev/null").out, "194\t\"\\xc2\"\n155\t\"\\x9b\"\n");
  EXPECT_EQ(RunAgainst(service, "tokenize", "--json ab").out, "{\"token_ids\":[97,98]}\n");
  EXPECT_EQ(RunAgainst(service, "tokenize", "--add-special-tokens=false --parse_special_tokens a 2>/dev/null").out,
            "97\t\"a\"\n");
}

TEST(ForetokenInfo, PrintsATableOrJson) {
  FakeGenerationService service;
  const Outcome table = RunAgainst(service, "info", "");
  EXPECT_THAT(table.out, HasSubstr("EchoForCausalLM"));
  EXPECT_THAT(table.out, HasSubstr("1.50 M"));
  EXPECT_THAT(table.out, HasSubstr("proposer ngram          2 connected"));
  EXPECT_THAT(table.out, HasSubstr("weights                 Q4_0\n"));
  EXPECT_THAT(table.out, HasSubstr("bits per weight         4.50, "));
  EXPECT_THAT(table.out, HasSubstr("40.0 tokens/s of one text without speculation, at 20.0 GB/s"));
  EXPECT_EQ(nlohmann::json::parse(RunAgainst(service, "info", "--json").out, nullptr, false)["max_tree_nodes"], 64);
}

TEST(ForetokenSimulate, PrintsATableOrJson) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/profile.json";
  std::ofstream(path) << R"({"format": 3, "model": "m", "rows": [{"num_rows": 1, "step_ms": 5}],
    "proposers": [{"name": "draft", "proposal_ms": 2}, {"name": "ngram", "proposal_ms": 0.5}],
    "plain": [{"num_sequences": 1, "num_steps": 9, "step_ms": 5, "accepted_lengths": [1]}],
    "speculative": [{"num_sequences": 1, "num_steps": 9, "step_ms": 6, "accepted_lengths": [0.5, 0.5]}],
    "requests": [{"prompt_tokens": 10, "output_tokens": 20}]})";
  const Outcome table = RunShell(absl::StrCat("simulate ", path, " --rate=50 --seconds=10"));
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, HasSubstr("breaks at requests/s"));
  const auto json = nlohmann::json::parse(RunShell(absl::StrCat("simulate ", path, " --clients=2 --json")).out);
  EXPECT_EQ(json["verifiers"], 1);
  EXPECT_GT(json["tokens_per_s"], 100);
  EXPECT_FALSE(json.contains("breaking_rate")) << "a closed loop has no rate";
  EXPECT_EQ(json["proposers"][0]["name"], "draft");
  const auto replicas = [&](const std::string& flag) {
    std::vector<int> numbers;
    const auto sizing =
        nlohmann::json::parse(RunShell(absl::StrCat("simulate ", path, " --clients=2 --json --replicas=", flag)).out);
    for (const auto& proposer : sizing["proposers"]) numbers.push_back(proposer["replicas"]);
    return numbers;
  };
  EXPECT_THAT(replicas("3"), ::testing::ElementsAre(3, 3));
  EXPECT_THAT(replicas("draft=3"), ::testing::ElementsAre(3, 1));
  EXPECT_THAT(replicas("0"), ::testing::ElementsAre());
  EXPECT_THAT(RunShell(absl::StrCat("simulate ", path, " --clients=2 --replicas=suffix=3 2>&1")).out,
              HasSubstr("--replicas: expected a number, or NAME=NUMBER with a proposer of the profile, got suffix=3"));
}

TEST(ForetokenSimulate, ShowsTheControlsInANameOfAProfile) {
  const testing::TempDir dir;
  const std::string path = dir.Write("profile.json", R"({"format": 3, "model": "m",
    "rows": [{"num_rows": 1, "step_ms": 5}], "proposers": [{"name": "\u001b]0;owned\u009b", "proposal_ms": 2}],
    "plain": [{"num_sequences": 1, "num_steps": 9, "step_ms": 5, "accepted_lengths": [1]}],
    "speculative": [{"num_sequences": 1, "num_steps": 9, "step_ms": 6, "accepted_lengths": [0.5, 0.5]}],
    "requests": [{"prompt_tokens": 10, "output_tokens": 20}]})");
  const std::string command = absl::StrCat("simulate ", path, " --clients=2");
  for (const std::string& out : {RunShell(command).out, RunShell(command + " --json").out}) {
    EXPECT_THAT(out, HasSubstr("]0;owned"));
    EXPECT_THAT(out, Not(HasSubstr("\x1b")));
    EXPECT_THAT(out, Not(HasSubstr("\u009b")));
  }
}

TEST(ForetokenSimulate, TakesTheVerifiersLimitsOfPrompts) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/profile.json";
  std::ofstream(path) << R"({"format": 3, "model": "m", "proposers": [],
    "rows": [{"num_rows": 1, "step_ms": 10}, {"num_rows": 1001, "step_ms": 1010}],
    "plain": [{"num_sequences": 1, "num_steps": 9, "step_ms": 10, "accepted_lengths": [1]}],
    "speculative": [{"num_sequences": 1, "num_steps": 9, "step_ms": 10, "accepted_lengths": [1]}],
    "requests": [{"prompt_tokens": 200, "output_tokens": 50}]})";
  const auto first_token_ms = [&](const std::string& flags) {
    const std::string arguments = absl::StrCat("simulate ", path, " --rate=1 --verifiers=1 --json ", flags);
    return nlohmann::json::parse(RunShell(arguments).out)["time_to_first_token_ms"]["mean"].get<double>();
  };
  const double usual_ms = first_token_ms("");
  EXPECT_GT(first_token_ms("--max_step_rows=64"), 1.05 * usual_ms) << "a prompt takes four steps";
  EXPECT_LT(first_token_ms("--max_inter_token_growth=9"), 0.8 * usual_ms) << "a stream leaves prompts more rows";
  EXPECT_LT(first_token_ms("--burst_window=10s"), 0.8 * usual_ms) << "every prompt belongs to a stream's burst";
  EXPECT_GT(first_token_ms("--burst_window=10s --max_burst_prompt_tokens=0"), 1.5 * usual_ms) << "no prompt does";
  EXPECT_THAT(RunShell(absl::StrCat("simulate ", path, " --rate=1 --max_running=600 2>&1")).out,
              HasSubstr("max_step_rows: expected max_running, 600, to 1000000, got 512"));
}

TEST(ForetokenSimulate, NamesWhatItCannotUse) {
  EXPECT_THAT(RunShell("simulate 2>&1").out, HasSubstr("expected one argument: the file of a profile"));
  EXPECT_THAT(RunShell("simulate --clients=2 --rate=3 profile 2>&1").out, HasSubstr("--rate: expected no --clients"));
  EXPECT_THAT(RunShell("simulate /no/such/file 2>&1").out, HasSubstr("NOT_FOUND: cannot open /no/such/file"));
  const testing::TempDir dir;
  std::ofstream(dir.path() + "/bad") << "{}";
  const Outcome folder = RunShell(absl::StrCat("simulate ", dir.path(), " 2>&1"));
  EXPECT_EQ(folder.exit_code, 1);
  EXPECT_THAT(folder.out, HasSubstr("is not a regular file"));
  EXPECT_THAT(RunShell(absl::StrCat("simulate ", dir.path(), "/bad 2>&1")).out, HasSubstr("profile: format"));
}

TEST(ForetokenBench, AProfileNeedsReportsAndARunOfItsOwn) {
  FakeGenerationService service;
  const testing::TempDir dir;
  const std::string flags = absl::StrCat("--profile=", dir.path(), "/profile.json --max_tokens=4 abc 2>&1");
  EXPECT_THAT(RunAgainst(service, "bench", flags).out, HasSubstr("does the server run with --allow_step_reports?"));
  EXPECT_THAT(RunAgainst(service, "bench", "--compare " + flags).out,
              HasSubstr("--profile: expected neither --compare nor --json_out with it"));
  EXPECT_FALSE(std::ifstream(dir.path() + "/profile.json").good());
}

// Otherwise a proposer that remembers outputs knows those of all runs but the first, and the profile promises too much.
TEST(ForetokenBench, EachRunOfAProfileIsATenantOfItsOwn) {
  FakeGenerationService service;
  const testing::TempDir dir;
  RunAgainst(service, "bench",
             absl::StrCat("--profile=", dir.path(), "/profile.json --clients=4 --requests=4 --max_tokens=4 ",
                          "--tenant=t --speculation=always abc >/dev/null 2>&1"));
  std::map<std::string, std::set<int>> modes;  // by tenant
  for (const GenerateRequest& request : service.requests()) {
    modes[request.tenant()].insert(request.speculation().mode());
  }
  EXPECT_EQ(service.requests().size(), 24);
  const std::set<int> on = {foretoken::v1::SPECULATION_MODE_ALWAYS}, off = {foretoken::v1::SPECULATION_MODE_OFF};
  EXPECT_THAT(modes, ElementsAre(Pair("t/speculation-off/clients-1", off), Pair("t/speculation-off/clients-2", off),
                                 Pair("t/speculation-off/clients-4", off), Pair("t/speculation-on/clients-1", on),
                                 Pair("t/speculation-on/clients-2", on), Pair("t/speculation-on/clients-4", on)));
}

TEST(ForetokenCheck, SeesThatAServerServes) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "check", "2>&1");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out,
            "model fake, version 0.0.0-fake\n"
            "proposer ngram: 2 connected\n"
            "generates 16 tokens, the same with speculation and without\n"
            "ends a request that its client cancels\n");
}

TEST(ForetokenCheck, SeesThatSpeculationChangesTokens) {
  FakeGenerationService service;
  service.set_script([](const GenerateRequest& request, grpc::ServerContext& context, const auto& write) {
    GenerateRequest other = request;
    if (request.speculation().mode() != foretoken::v1::SPECULATION_MODE_OFF) other.set_text("another");
    return testing::GenerateFromPrompt(other, context, write);
  });
  const Outcome outcome = RunAgainst(service, "check", "2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("speculation changes tokens: 97,110,111"));
}

// A false alarm would blame speculation for a server that drains.
TEST(ForetokenCheck, BlamesTheServerForAnOutputThatItCutOff) {
  FakeGenerationService service;
  service.set_script([](const GenerateRequest& request, grpc::ServerContext& context, const auto& write) {
    const bool is_plain = request.speculation().mode() == foretoken::v1::SPECULATION_MODE_OFF;
    if (is_plain) return testing::GenerateFromPrompt(request, context, write);
    return testing::CutOff(foretoken::v1::FINISH_REASON_SHUTDOWN)(request, context, write);
  });
  for (const auto& [command, arguments] :
       {std::pair("check", "2>&1"), {"compare", "abc 2>&1"}, {"bench", "--compare abc 2>&1"}}) {
    const Outcome outcome = RunAgainst(service, command, arguments);
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_THAT(outcome.out, HasSubstr("the server shut down before the end of the output")) << command;
    EXPECT_THAT(outcome.out, Not(HasSubstr("speculation change"))) << command;
  }
}

TEST(ForetokenCheck, SeesThatACancelledRequestRunsOn) {
  FakeGenerationService service;
  service.set_keeps_requests(true);
  const Outcome outcome = RunAgainst(service, "check", "2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("a cancelled request still runs after 5s"));
}

TEST(ForetokenBench, PrintsATableAndWritesJson) {
  FakeGenerationService service;
  const testing::TempDir dir;
  const std::string path = dir.path() + "/bench.json";
  const Outcome outcome =
      RunAgainst(service, "bench",
                 absl::StrCat("--clients=4 --requests=40 --max_tokens=6 --prompt_file=",
                              testing::SourcePath("deploy/demo/prompts.jsonl"), " --json_out=", path, " 2>&1"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("ngram accepted"));
  EXPECT_EQ(service.requests().size(), 40);
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  EXPECT_EQ(json["num_tokens"], 240);
  EXPECT_EQ(json["tokens_per_step"], 2.0);
  EXPECT_EQ(json["num_failed"], 0);
}

TEST(ForetokenBench, WritesJsonIntoAPipe) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "bench", "--json_out=/dev/fd/3 abc 3>&1 >/dev/null 2>/dev/null");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("\n  \"num_requests\": 1,\n"));
}

TEST(ForetokenBench, WritesJsonInPlaceOfTheTable) {
  FakeGenerationService service;
  for (const std::string flags : {"--json_out=-", "--json_out=- --compare", "--json_out=/dev/stdout"}) {
    const Outcome outcome = RunAgainst(service, "bench", flags + " abc 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_TRUE(nlohmann::json::accept(outcome.out)) << outcome.out;
    EXPECT_FALSE(std::filesystem::exists("-"));
  }
}

// A run may take hours, and the program that reads its table may end before.
TEST(ForetokenBench, WritesItsFileWithoutAReaderOfTheTable) {
  FakeGenerationService service;
  const testing::TempDir dir;
  const auto run = [&](const std::string& flags) {
    RunShell(absl::StrCat("--version >/dev/null; (sleep 0.5; ", FORETOKEN_BINARY, " bench --target=", service.target(),
                          " --max_tokens=4 ", flags, " abc 2>/dev/null) | true"));
  };
  run(absl::StrCat("--json_out=", dir.path(), "/result"));
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/result"));
  run(absl::StrCat("--compare --json_out=", dir.path(), "/comparison"));
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/comparison"));
  const size_t num_before = service.requests().size();
  run(absl::StrCat("--clients=4 --requests=4 --profile=", dir.path(), "/profile"));
  EXPECT_EQ(service.requests().size() - num_before, 24) << "the first line of the table ends no profile";
}

TEST(ForetokenBench, PrintsTheTableThoughItsFileFails) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "bench", "--json_out=/dev/full abc 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("tokens per step"));
  EXPECT_THAT(outcome.out, HasSubstr("--json_out: cannot write /dev/full"));
}

TEST(ForetokenBench, SendsRequestsAtARate) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "bench", "--rate=200 --requests=30 --max_tokens=6 abc 2>&1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_EQ(service.requests().size(), 30);
}

TEST(ForetokenBench, ComparesSpeculationOffAndOn) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "bench", "--compare --requests=3 --max_tokens=8 abc 2>&1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("token ids equal in 3 of 3 requests"));
  EXPECT_THAT(outcome.out, HasSubstr("3 are too few to tell it from noise; send more requests"));
}

TEST(ForetokenBench, FailsWhenSpeculationChangesATokenOrARequestFails) {
  FakeGenerationService service;
  service.set_script([](const GenerateRequest& request, auto& context, auto& write) {
    GenerateRequest changed = request;
    if (request.speculation().mode() != foretoken::v1::SPECULATION_MODE_OFF) changed.set_text("abd");
    return foretoken::testing::GenerateFromPrompt(changed, context, write);
  });
  const Outcome changed = RunAgainst(service, "bench", "--compare abc 2>&1");
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_THAT(changed.out, HasSubstr("token ids NOT equal"));

  service.set_script([](auto&, auto&, auto&) { return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"); });
  const Outcome failed = RunAgainst(service, "bench", "--requests=2 abc 2>&1");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.out, HasSubstr("2 of 2 requests failed; the first with: full"));
}

TEST(ForetokenCompare, ShowsBothTextsSideBySide) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "compare", "--max_tokens=5 --color=always abc 2>&1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("speculation off                                  │ speculation on\n"));
  EXPECT_THAT(outcome.out, HasSubstr("abcab                                            │ a\x1b[32mb\x1b[0mc\x1b[32ma"));
  EXPECT_THAT(outcome.out, HasSubstr("5 tokens in "));
  EXPECT_THAT(outcome.out, HasSubstr("token ids equal in 1 of 1 requests\n"));
}

TEST(ForetokenCompare, GivesTextsThatItDoesNotShowALineEach) {
  FakeGenerationService service;
  const testing::TempDir dir;
  std::ofstream(dir.path() + "/p") << "{\"prompt\": \"abc\"}\n{\"prompt\": \"def\"}\n";
  const Outcome outcome =
      RunAgainst(service, "compare", absl::StrCat("--show=1 --max_tokens=5 --prompt_file=", dir.path(), "/p 2>&1"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("\nabcab "));
  EXPECT_THAT(outcome.out, Not(HasSubstr("defde")));
  EXPECT_THAT(outcome.out, HasSubstr("\ntext 2 of 2: 5 tokens, off "));
}

TEST(ForetokenCompare, FailsWhenSpeculationChangesATokenOrARequestFails) {
  FakeGenerationService service;
  service.set_script([](const GenerateRequest& request, auto& context, auto& write) {
    GenerateRequest changed = request;
    if (request.speculation().mode() != foretoken::v1::SPECULATION_MODE_OFF) changed.set_text("abd");
    return foretoken::testing::GenerateFromPrompt(changed, context, write);
  });
  const Outcome changed = RunAgainst(service, "compare", "abc 2>&1");
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_THAT(changed.out, HasSubstr("x, token ids NOT equal\n"));
  EXPECT_THAT(changed.out, HasSubstr("speculation changed the output"));

  service.set_script([](auto&, auto&, auto&) { return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"); });
  const Outcome failed = RunAgainst(service, "compare", "abc 2>&1");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.out, HasSubstr("RESOURCE_EXHAUSTED: full"));
  EXPECT_THAT(RunAgainst(service, "compare", "--n=2 abc 2>&1").out, HasSubstr("--n: compare shows one sample"));
}

// One text, whose stream without speculation stays open for two seconds after its last token.
TEST(ForetokenCompare, MeasuresToTheLastToken) {
  FakeGenerationService service;
  service.set_script([](const GenerateRequest& request, auto& context, auto& write) {
    const grpc::Status status = testing::GenerateFromPrompt(request, context, write);
    if (request.tenant() == "/speculation-off") absl::SleepFor(absl::Seconds(2));
    return status;
  });
  EXPECT_THAT(RunAgainst(service, "compare", "--max_tokens=5 abc 2>&1").out,
              ::testing::ContainsRegex("\n5 tokens in ([0-9]+ ms|[01][.][0-9]+ s) "));
}

TEST(ForetokenCompare, RefusesFlagsUnderWhichThereIsNothingToCompare) {
  FakeGenerationService service;
  const testing::TempDir dir;
  const std::string profile = absl::StrCat("--profile=", dir.path(), "/profile.json ");
  for (const auto& [command, flags] :
       {std::pair<std::string, std::string>{"compare", ""}, {"bench", "--compare "}, {"bench", profile}}) {
    const Outcome off = RunAgainst(service, command, flags + "--speculation=off abc 2>&1");
    EXPECT_EQ(off.exit_code, 1) << command << flags;
    EXPECT_THAT(off.out, HasSubstr("INVALID_ARGUMENT: --speculation: expected auto or always")) << command << flags;
    if (flags == profile) continue;  // compares no tokens
    const std::string rejection = flags + "--verification=rejection_sampling --temperature=";
    const Outcome sampled = RunAgainst(service, command, rejection + "0.8 abc 2>&1");
    EXPECT_EQ(sampled.exit_code, 1) << command << flags;
    EXPECT_THAT(sampled.out, HasSubstr("INVALID_ARGUMENT: --verification: expected keyed_draw")) << command << flags;
    EXPECT_EQ(service.requests().size(), 0);
  }
  for (const auto& [command, flags] : {std::pair("compare", ""), {"bench", "--compare "}}) {
    const Outcome greedy =
        RunAgainst(service, command, absl::StrCat(flags, "--verification=rejection_sampling --temperature=0 abc 2>&1"));
    EXPECT_EQ(greedy.exit_code, 0) << command << greedy.out;
  }
}

TEST(ForetokenBench, FindsBeforeTheRunThatItsResultHasNoPlace) {
  const testing::TempDir dir;
  for (const std::string& path : {dir.path(), dir.path() + "/none/result"}) {
    for (const std::string flag : {"--json_out", "--profile"}) {
      const Outcome outcome = RunShell(absl::StrCat("bench --target=localhost:1 ", flag, "=", path, " abc 2>&1"));
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_EQ(outcome.out, absl::StrCat("foretoken: INVALID_ARGUMENT: ", flag, ": cannot write ", path, "\n"));
    }
  }
}

TEST(ForetokenBench, RefusesImpossibleLoads) {
  const FakeGenerationService service;
  EXPECT_THAT(RunAgainst(service, "bench", "--clients=0 abc 2>&1").out, HasSubstr("--clients: expected 1 to 1024"));
  EXPECT_THAT(RunAgainst(service, "bench", "--rate=-1 abc 2>&1").out, HasSubstr("--rate: expected 0.001 to 10000"));
  EXPECT_THAT(RunAgainst(service, "bench", "--rate=nan abc 2>&1").out, HasSubstr("--rate: expected 0.001 to 10000"));
  EXPECT_THAT(RunAgainst(service, "bench", "--rate=2 --clients=2 abc 2>&1").out, HasSubstr("expected no --clients"));
  EXPECT_THAT(RunAgainst(service, "bench", "--rate=2 --compare abc 2>&1").out, HasSubstr("expected neither --compare"));
  EXPECT_THAT(RunAgainst(service, "bench", "--requests=-1 abc 2>&1").out, HasSubstr("--requests"));
  EXPECT_THAT(RunAgainst(service, "bench", "--request_id=r abc 2>&1").out, HasSubstr("--request_id"));
  EXPECT_THAT(RunAgainst(service, "bench", "2>&1").out, HasSubstr("expected either a prompt argument"));
}

TEST(Foretoken, ExplainsItself) {
  EXPECT_THAT(RunShell("help").out, HasSubstr("generate"));
  EXPECT_EQ(RunShell("2>/dev/null").exit_code, 2);
  EXPECT_THAT(RunShell("help bench").out, HasSubstr("--compare"));
  EXPECT_THAT(RunShell("info --help").out, ::testing::Not(HasSubstr("--compare")));
  for (const char* help : {"generate --help", "generate -h", "generate --helpshort", "help generate"}) {
    const Outcome outcome = RunShell(help);
    EXPECT_EQ(outcome.exit_code, 0) << help;
    EXPECT_THAT(outcome.out, HasSubstr("usage: foretoken generate [--FLAG=VALUE]... [PROMPT]\n")) << help;
    EXPECT_THAT(outcome.out, HasSubstr("  --max_tokens\n      Generate at most this many tokens\n")) << help;
  }
  for (const char* version : {"--version", "version"}) {
    EXPECT_EQ(RunShell(version).out, absl::StrCat("foretoken ", base::Version(), "\n"));
  }
  EXPECT_EQ(RunShell("generate --version").exit_code, 0);
  const Outcome unknown = RunShell("sing 2>&1");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.out, HasSubstr("no command \"sing\""));
}

// A flag that changes nothing misleads: `compare --json_out=FILE` would end with success and write no file.
TEST(Foretoken, ACommandRefusesTheFlagsOfOtherCommands) {
  const std::pair<std::string, std::string> kOthers[] = {{"bench", "json"},
                                                         {"bench", "prompt_tokens"},
                                                         {"compare", "json_out"},
                                                         {"compare", "prompt_tokens"},
                                                         {"chat", "prompt_file"},
                                                         {"check", "tenant"},
                                                         {"explain", "trace"},
                                                         {"generate", "show"},
                                                         {"info", "model"},
                                                         {"perplexity", "target"},
                                                         {"quantize", "model"},
                                                         {"selftest", "prompt_tokens"},
                                                         {"simulate", "max_tokens"},
                                                         {"tokenize", "max_tokens"},
                                                         {"tokenize", "prompt_tokens"}};
  for (const auto& [command, flag] : kOthers) {
    const Outcome outcome = RunShell(absl::StrCat(command, " --", flag, "=1 abc 2>&1 </dev/null"));
    EXPECT_EQ(outcome.exit_code, 1) << command << " --" << flag;
    EXPECT_EQ(outcome.out, absl::StrCat("foretoken ", command, ": --", flag,
                                        " is a flag of other commands; --help shows the flags of this one\n"));
    EXPECT_THAT(RunShell("help " + command).out, Not(::testing::ContainsRegex(absl::StrCat("\n  --", flag, "[ \n]"))));
  }
}

// Every command would take a flag that belongs to none.
TEST(Foretoken, EveryFlagBelongsToACommand) {
  std::string helps;
  const std::string usage = RunShell("help").out;
  static const std::regex command("\n  ([a-z]+)\t"), flag(R"(ABSL_FLAG\(\s*[\w:<>]+,\s*(\w+),)");
  for (std::sregex_iterator it(usage.begin(), usage.end(), command), end; it != end; ++it) {
    if ((*it)[1] != "help") absl::StrAppend(&helps, RunShell("help " + (*it)[1].str()).out);
  }
  int num_flags = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::SourcePath("client"))) {
    if (entry.path().extension() != ".cc") continue;
    const std::string source = base::ReadFile(entry.path().string()).value();
    for (std::sregex_iterator it(source.begin(), source.end(), flag), end; it != end; ++it, ++num_flags) {
      EXPECT_THAT(helps, ::testing::ContainsRegex("\n  --" + (*it)[1].str() + "[ \n]")) << entry.path();
    }
  }
  EXPECT_GT(num_flags, 80);
}

}  // namespace
}  // namespace foretoken::client
