// SPDX-License-Identifier: Apache-2.0
// `foretoken chat` as a user runs it, against the fake service, which answers with the last message. If these tests
// fail, the command forgets a part of the conversation, prints wrong output or ends when it should go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/mapped_file.h"
#include "nlohmann/json.hpp"
#include "tests/client/commands/run_foretoken.h"
#include "tests/testing/fakes/fake_generation_service.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::client {
namespace {

using foretoken::testing::FakeGenerationService;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Runs `foretoken chat` with these lines on standard input.
Outcome Chat(const FakeGenerationService& service, const std::string& lines, const std::string& flags = "") {
  const testing::TempDir dir;
  return RunAgainst(service, "chat", absl::StrCat(flags, " <", dir.Write("lines", lines)));
}

std::string Messages(const foretoken::v1::GenerateRequest& request) {
  std::string text;
  for (const auto& message : request.chat().messages())
    absl::StrAppend(&text, message.role(), ":", message.content(), " ");
  return text;
}

TEST(ForetokenChat, AnswersEachLineAndRemembers) {
  FakeGenerationService service;
  const Outcome outcome = Chat(service, "ab\n\ncd\n", "--max_tokens=2 --system=S --seed=7 2>/dev/null");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "ab\ncd\n");
  ASSERT_EQ(service.requests().size(), 2);
  EXPECT_EQ(Messages(service.requests()[0]), "system:S user:ab ");
  EXPECT_EQ(Messages(service.requests()[1]), "system:S user:ab assistant:ab user:cd ");
  EXPECT_EQ(service.requests()[1].sampling().seed(), 7);
}

TEST(ForetokenChat, PrintsALineOfNumbersAfterEachAnswer) {
  FakeGenerationService service;
  EXPECT_THAT(Chat(service, "ab\n", "--max_tokens=4 2>&1").out, HasSubstr("abab\n4 tokens, "));
  EXPECT_THAT(Chat(service, "ab\n", "--max_tokens=4 2>&1").out, HasSubstr("2.00 tokens per step"));
}

TEST(ForetokenChat, ObeysCommands) {
  FakeGenerationService service;
  const testing::TempDir dir;
  const std::string file = dir.path() + "/chat.json";
  const Outcome outcome = Chat(service,
                               absl::StrCat("/system Be brief.\na\n/save ", file,
                                            "\n/reset\n/system\n//b\n/help\n/nonsense\n/save\n/quit\nnever\n"),
                               "--max_tokens=1 2>&1");
  EXPECT_EQ(outcome.exit_code, 1) << "a command failed";
  ASSERT_EQ(service.requests().size(), 2);
  EXPECT_EQ(Messages(service.requests()[0]), "system:Be brief. user:a ");
  EXPECT_EQ(Messages(service.requests()[1]), "user:/b ");
  EXPECT_THAT(outcome.out, HasSubstr("saved 1 turns in "));
  EXPECT_THAT(outcome.out, HasSubstr("/compare "));
  EXPECT_THAT(outcome.out, HasSubstr("no command /nonsense; /help shows the commands"));
  EXPECT_THAT(outcome.out, HasSubstr("/save: expected a file, got none"));
  std::stringstream saved;
  saved << std::ifstream(file).rdbuf();
  EXPECT_EQ(nlohmann::json::parse(saved.str()).size(), 3);
}

// The lines of a pipe may be a stranger's.
TEST(ForetokenChat, OverwritesAFileAtATerminalOnly) {
  const FakeGenerationService service;
  const testing::TempDir dir;
  const std::string file = dir.Write("mine", "mine"), lines = absl::StrCat("/save ", file, "\n/quit\n");
  const Outcome piped = Chat(service, lines, "2>&1");
  EXPECT_EQ(piped.exit_code, 1);
  EXPECT_THAT(piped.out, HasSubstr(absl::StrCat("ALREADY_EXISTS: /save: cannot create ", file)));
  EXPECT_EQ(base::ReadFile(file).value(), "mine");

  int leader = -1;
  int follower = -1;
  ASSERT_EQ(openpty(&leader, &follower, nullptr, nullptr, nullptr), 0);
  ASSERT_EQ(write(leader, lines.data(), lines.size()), std::ssize(lines));
  const Outcome typed = RunAgainst(service, "chat", absl::StrCat("2>&1 <", ttyname(follower)));
  EXPECT_EQ(typed.exit_code, 0) << typed.out;
  EXPECT_EQ(base::ReadFile(file).value(), "[]\n");
  close(leader);
  close(follower);
}

TEST(ForetokenChat, ComparesTheLastAnswerWithPlainDecoding) {
  FakeGenerationService service;
  const Outcome outcome = Chat(service, "/compare\nab\n/compare\n", "--max_tokens=4 2>&1");
  EXPECT_THAT(outcome.out, HasSubstr("/compare: expected a complete answer before it, got none"));
  EXPECT_THAT(outcome.out, HasSubstr("; the tokens are equal\n"));
  EXPECT_THAT(Chat(FakeGenerationService(), "ab\n/compare\n", "--max_tokens=1 2>&1").out,
              HasSubstr("too few messages came to compare the speed; the tokens are equal\n"));
  ASSERT_EQ(service.requests().size(), 2);
  EXPECT_EQ(service.requests()[1].speculation().mode(), foretoken::v1::SPECULATION_MODE_OFF);
  EXPECT_EQ(Messages(service.requests()[1]), "user:ab ");
}

// Only the first answer waits two seconds for its prompt. Then both answers write a token every tenth of a second, so
// speculation has won nothing and lost nothing.
TEST(ForetokenChat, ComparesTheSpeedAfterTheFirstToken) {
  FakeGenerationService service;
  service.set_script([](const foretoken::v1::GenerateRequest& request, auto& context, const auto& write) {
    if (request.speculation().mode() != foretoken::v1::SPECULATION_MODE_OFF) absl::SleepFor(absl::Seconds(2));
    foretoken::v1::GenerateRequest plain = request;
    plain.mutable_speculation()->set_mode(foretoken::v1::SPECULATION_MODE_OFF);
    return testing::GenerateFromPrompt(plain, context, [&](const foretoken::v1::GenerateResponse& response) {
      const bool is_read = write(response);
      absl::SleepFor(absl::Milliseconds(100));
      return is_read;
    });
  });
  const std::string out = Chat(service, "ab\n/compare\n", "--max_tokens=3 2>&1").out;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(out, found,
                                std::regex("after the first token [0-9.]+ tokens/s with speculation, [0-9.]+ tokens/s "
                                           "without: ([0-9.]+) times as fast; the tokens are equal\n")))
      << out;
  EXPECT_GT(std::stod(found[1]), 0.3) << "the time of the prompt counts";
  EXPECT_LT(std::stod(found[1]), 3) << "the time of the prompt counts";
}

TEST(ForetokenChat, ComparesNoTokensThatRejectionSamplingMayChange) {
  FakeGenerationService service;
  service.set_script([](const foretoken::v1::GenerateRequest& request, auto& context, const auto& write) {
    foretoken::v1::GenerateRequest other = request;
    if (request.speculation().mode() == foretoken::v1::SPECULATION_MODE_OFF) {
      other.mutable_chat()->mutable_messages(0)->set_content("cd");
    }
    return testing::GenerateFromPrompt(other, context, write);
  });
  const std::string lines = "ab\n/compare\n", rule = "--verification=rejection_sampling --temperature=";
  const Outcome sampled = Chat(service, lines, rule + "0.8 2>&1");
  EXPECT_EQ(sampled.exit_code, 0);
  EXPECT_THAT(sampled.out, HasSubstr("; the tokens are not compared, because rejection sampling may change them\n"));
  EXPECT_THAT(Chat(service, lines, rule + "0 2>&1").out, HasSubstr("; the tokens DIFFER\n"));
}

TEST(ForetokenChat, ComparesNoAnswerWithoutSpeculation) {
  FakeGenerationService service;
  const Outcome outcome = Chat(service, "ab\n/compare\n", "--speculation=off 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("INVALID_ARGUMENT: --speculation: expected auto or always"));
  EXPECT_EQ(service.requests().size(), 1);
}

TEST(ForetokenChat, GoesOnAfterAnErrorWithoutTheFailedMessage) {
  FakeGenerationService service;
  service.set_script([](const auto& request, auto& context, const auto& write) {
    const auto& messages = request.chat().messages();
    if (messages.at(messages.size() - 1).content() == "bad") {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "chat: refused");
    }
    return testing::GenerateFromPrompt(request, context, write);
  });
  const Outcome outcome = Chat(service, "bad\nab\n", "--max_tokens=2 2>&1");
  EXPECT_THAT(outcome.out, HasSubstr("INVALID_ARGUMENT: chat: refused"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(Messages(service.requests().at(1)), "user:ab ");
}

TEST(ForetokenChat, KeepsNoAnswerThatTheServerEndedEarly) {
  const auto cancel = [](const auto&, auto&, const auto& write) {
    foretoken::v1::GenerateResponse response;
    response.set_text("ab");
    write(response);
    return grpc::Status(grpc::StatusCode::CANCELLED, "gone");
  };
  for (const testing::GenerateScript& end_early :
       {testing::CutOff(foretoken::v1::FINISH_REASON_SHUTDOWN), testing::GenerateScript(cancel)}) {
    FakeGenerationService service;
    service.set_script([&](const auto& request, auto& context, const auto& write) {
      if (request.chat().messages(0).content() == "abab") return end_early(request, context, write);
      return testing::GenerateFromPrompt(request, context, write);
    });
    const Outcome outcome = Chat(service, "abab\ncd\n", "--max_tokens=4 2>&1");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.out, StartsWith("ab\nforetoken: UNAVAILABLE: "));
    ASSERT_EQ(service.requests().size(), 2);
    EXPECT_EQ(Messages(service.requests()[1]), "user:cd ");
  }
}

TEST(ForetokenChat, StopsAnAnswerAtCtrlCAndKeepsTheConversation) {
  FakeGenerationService service;
  service.set_script([](const auto& request, auto& context, const auto& write) {
    if (request.chat().messages_size() > 1) return testing::GenerateFromPrompt(request, context, write);
    foretoken::v1::GenerateResponse response;
    response.set_text("part");
    response.add_token_ids(1);
    write(response);
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::CANCELLED;
  });
  const testing::TempDir dir;
  const std::string lines = dir.Write("lines", "endless\nab\n");
  const std::string out = dir.path() + "/out";
  const Outcome outcome = RunShell(absl::StrCat(
      "chat --max_tokens=2 --target=", service.target(), " <", lines, " >", out, " 2>&1 & pid=$!; ",
      "until grep -q part ", out, "; do sleep 0.01; done; kill -INT $pid; wait $pid; echo \"code $?\"; cat ", out));
  EXPECT_THAT(outcome.out, HasSubstr("code 0"));
  EXPECT_THAT(outcome.out, HasSubstr("stopped: "));
  ASSERT_EQ(service.requests().size(), 2);
  EXPECT_EQ(Messages(service.requests()[1]), "user:endless assistant:part user:ab ");
}

// `timeout` and systemd would wait for a program that talks on.
TEST(ForetokenChat, EndsAtSigterm) {
  FakeGenerationService service;
  absl::Notification cancelled;
  service.set_script([&](const auto& request, auto& context, const auto& write) {
    if (request.chat().messages_size() > 1) return testing::GenerateFromPrompt(request, context, write);
    foretoken::v1::GenerateResponse response;
    response.set_text("part");
    write(response);
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    cancelled.Notify();
    return grpc::Status::CANCELLED;
  });
  const testing::TempDir dir;
  const std::string lines = dir.Write("lines", "endless\nab\n"), out = dir.path() + "/out";
  const Outcome outcome = RunShell(absl::StrCat("chat --target=", service.target(), " <", lines, " >", out,
                                                " 2>&1 & pid=$!; until grep -q part ", out,
                                                "; do sleep 0.01; done; kill -TERM $pid; wait $pid; echo \"code $?\""));
  EXPECT_EQ(outcome.out, "code 143\n");
  EXPECT_TRUE(cancelled.WaitForNotificationWithTimeout(absl::Seconds(10)));
  EXPECT_EQ(service.requests().size(), 1);
}

// gRPC makes an eventfd before main, which would get the number of the standard input.
TEST(ForetokenChat, TakesAClosedInputForAnEmptyOne) {
  const FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "chat", "2>&1 <&-");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "");
}

TEST(ForetokenChat, FailsIfItsInputCannotBeRead) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "chat", "</ 2>&1");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("cannot read the standard input"));
}

TEST(ForetokenChat, RefusesALineWithoutAnEnd) {
  FakeGenerationService service;
  const Outcome outcome = RunAgainst(service, "chat", "</dev/zero 2>&1");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("standard input: expected lines of at most 67108864 bytes"));
}

TEST(ForetokenChat, ASaveThatFailsLeavesNoFile) {
  FakeGenerationService service;
  const testing::TempDir dir;
  const std::string lines = dir.Write("lines", absl::StrCat("a\n/save ", dir.path(), "/saved\n"));
  // A limit of 0 for files fails every write as a full disk does.
  const Outcome outcome = RunShell(absl::StrCat("--version; trap '' XFSZ; ulimit -f 0; ", FORETOKEN_BINARY,
                                                " chat --target=", service.target(), " <", lines, " 2>&1"));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr(absl::StrCat(dir.path(), "/saved")));
  EXPECT_NE(access((dir.path() + "/saved").c_str(), F_OK), 0);
}

TEST(ForetokenChat, SaysThatTheModelHasNoTemplate) {
  FakeGenerationService service;
  service.set_has_chat_template(false);
  const Outcome outcome = Chat(service, "ab\n", "2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("FAILED_PRECONDITION: the checkpoint of fake has no chat template"));
}

TEST(ForetokenChat, RefusesArgumentsAndManySamples) {
  FakeGenerationService service;
  EXPECT_THAT(RunAgainst(service, "chat", "hello 2>&1").out, HasSubstr("got the argument hello"));
  EXPECT_THAT(Chat(service, "ab\n", "--n=2 2>&1").out, HasSubstr("--n: a conversation has one answer"));
}

}  // namespace
}  // namespace foretoken::client
