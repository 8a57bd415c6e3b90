// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/compile_process.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/error_text.h"
#include "common/base/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/grammar_tokens.h"
#include "tests/testing/temp_dir.h"
#include "verifier_service/grammar/grammar_compiler.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;

const std::string kProgram = FORETOKEN_BINARY_DIR "/foretoken_verifier";
const std::string kTenant = "team";

std::string Repeated(const std::string& text, int num_times) {
  std::string repeated;
  for (int i = 0; i < num_times; ++i) absl::StrAppend(&repeated, text);
  return repeated;
}

// A schema of this many strings that must match patterns of their own.
std::string ManyPatterns(int num_properties) {
  std::string schema = "{\"type\":\"object\",\"properties\":{";
  for (int i = 0; i < num_properties; ++i) {
    absl::StrAppend(&schema, i > 0 ? "," : "", "\"p", i, "\":{\"type\":\"string\",\"pattern\":\"^[a-z]{3,9}x", i,
                    "[0-9]+$\"}");
  }
  return schema + "}}";
}

TEST(CompileProcess, CompilesOneTextAfterAnother) {
  CompileProcess process(kProgram, testing::ByteTokens(), {});
  const GrammarVocabulary vocabulary(testing::ByteTokens());
  for (const std::string text : {"a+", "b+"}) {
    const auto serialized = process.Compile({.kind = GrammarKind::kRegex, .text = text});
    ASSERT_TRUE(serialized.ok()) << serialized.status();
    const auto grammar = Grammar::Parse(*serialized, vocabulary);
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    EXPECT_TRUE(testing::Matches(*grammar, text.substr(0, 1)));
    EXPECT_FALSE(testing::Matches(*grammar, "c"));
  }
  const auto refused = process.Compile({.kind = GrammarKind::kRegex, .text = "(a"});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(refused.status()), "INVALID_ARGUMENT");
}

TEST(CompileProcess, AHostileTextEndsWithinItsLimits) {
  const GrammarSource hostile[] = {
      {.kind = GrammarKind::kJsonSchema, .text = ManyPatterns(5000)},
      {.kind = GrammarKind::kJsonSchema,
       .text = Repeated("{\"type\":\"array\",\"items\":", 40'000) + "{}" + Repeated("}", 40'000)},
      {.kind = GrammarKind::kEbnf, .text = "root ::= " + Repeated("(", 100'000) + "\"a\"" + Repeated(")", 100'000)},
      {.kind = GrammarKind::kRegex, .text = Repeated("(", 100'000) + "a" + Repeated(")", 100'000)},
      {.kind = GrammarKind::kRegex, .text = Repeated("(a|b)?.{0,1000}", 1000)},
  };
  CompileProcess process(kProgram, testing::ByteTokens(), {.max_time = absl::Milliseconds(200)});
  for (const GrammarSource& source : hostile) {
    const auto result = process.Compile(source);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << source.text.substr(0, 40);
  }
  // The process serves on.
  EXPECT_TRUE(process.Compile({.kind = GrammarKind::kRegex, .text = "a"}).ok());
}

TEST(CompileProcess, ATextOverTheTimeNamesTheLimit) {
  CompileProcess process(kProgram, testing::ByteTokens(), {.max_time = absl::Milliseconds(50)});
  const auto result = process.Compile({.kind = GrammarKind::kJsonSchema, .text = ManyPatterns(5000)});
  EXPECT_EQ(base::ReasonOf(result.status()), "FORMAT_TOO_COSTLY");
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("50ms of a processor"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("more time"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(_GLIBCXX_TSAN)  // sanitizers reserve memory, so none is limited
TEST(CompileProcess, ATextOverTheMemoryNamesTheLimit) {
  CompileProcess process(kProgram, testing::ByteTokens(),
                         {.max_time = absl::Seconds(20), .max_memory_bytes = int64_t{8} << 20});
  const auto result = process.Compile({.kind = GrammarKind::kJsonSchema, .text = ManyPatterns(5000)});
  EXPECT_EQ(base::ReasonOf(result.status()), "FORMAT_TOO_COSTLY");
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("more memory"));
}
#endif

TEST(CompileProcess, AGrammarThatIsTooLargeToSendIsRefused) {
  CompileProcess process(kProgram, testing::ByteTokens(), {.max_grammar_bytes = 10});
  const auto result = process.Compile({.kind = GrammarKind::kRegex, .text = "a"});
  EXPECT_EQ(base::ReasonOf(result.status()), "FORMAT_TOO_COSTLY");
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("more memory"));
}

TEST(CompileProcess, ARefusalThatQuotesTheTextIsShort) {
  CompileProcess process(kProgram, testing::ByteTokens(), {});
  const std::string name(1 << 20, 'a');
  const absl::Status refused = process.Compile({.kind = GrammarKind::kEbnf, .text = "root ::= " + name}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("aaa"));
  EXPECT_LE(refused.message().size(), kMaxRefusalBytes);
}

// The kill may come to the process before or after the next text has been sent.
TEST(CompileProcess, AKillBetweenTwoTextsFailsNeither) {
  CompileProcess process(kProgram, testing::ByteTokens(), {});
  const GrammarSource source = {.kind = GrammarKind::kRegex, .text = "a"};
  ASSERT_TRUE(process.Compile(source).ok());
  for (int i = 0; i < 20; ++i) {
    const pid_t killed = process.pid();
    ASSERT_EQ(kill(killed, SIGKILL), 0);
    if (i % 2 == 0) absl::SleepFor(absl::Milliseconds(10));
    const auto result = process.Compile(source);
    ASSERT_TRUE(result.ok()) << i << ": " << result.status();
    EXPECT_NE(process.pid(), killed);
  }
}

// A process that stands still reads nothing, so its end leaves the text unread for certain.
TEST(CompileProcess, AnUnreadTextIsSentAgain) {
  CompileProcess process(kProgram, testing::ByteTokens(), {});
  const GrammarSource source = {.kind = GrammarKind::kRegex, .text = "a"};
  ASSERT_TRUE(process.Compile(source).ok());
  ASSERT_EQ(kill(process.pid(), SIGSTOP), 0);
  std::thread killer([pid = process.pid()] {
    absl::SleepFor(absl::Milliseconds(50));
    kill(pid, SIGKILL);
  });
  const auto result = process.Compile(source);
  killer.join();
  EXPECT_TRUE(result.ok()) << result.status();
}

// The first child of the process; 0: none.
pid_t ChildOf(pid_t process) {
  pid_t child = 0;
  std::ifstream(absl::StrCat("/proc/", process, "/task/", process, "/children")) >> child;
  return child;
}

// The text may be what ended the process.
TEST(CompileProcess, ATextThatWasReadIsNotSentAgain) {
  CompileProcess process(kProgram, testing::ByteTokens(), {.max_time = absl::Seconds(20)});
  const GrammarSource source = {.kind = GrammarKind::kRegex, .text = "a"};
  ASSERT_TRUE(process.Compile(source).ok());
  while (ChildOf(process.pid()) != 0) absl::SleepFor(absl::Milliseconds(1));  // it has answered, and ends
  std::thread killer([pid = process.pid()] {
    while (ChildOf(pid) == 0) absl::SleepFor(absl::Milliseconds(1));
    kill(pid, SIGKILL);
  });
  const absl::Status failed = process.Compile({.kind = GrammarKind::kJsonSchema, .text = ManyPatterns(5000)}).status();
  killer.join();
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
  EXPECT_EQ(process.pid(), 0);
  EXPECT_TRUE(process.Compile(source).ok());
}

// Kills each child of the compile process, as a kernel without memory does, until the end.
class ChildKiller {
 public:
  ~ChildKiller() {
    must_end_ = true;
    thread_.join();
  }

 private:
  void Run() {
    while (!must_end_) {
      if (const pid_t child = ChildOf(ChildOf(getpid())); child != 0) kill(child, SIGKILL);
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  std::atomic<bool> must_end_ = false;
  std::thread thread_{[this] { Run(); }};
};

TEST(CompileProcess, AKillFromOutsideIsNotTheTextsFault) {
  CompileProcess process(kProgram, testing::ByteTokens(), {.max_time = absl::Seconds(20)});
  const GrammarSource source = {.kind = GrammarKind::kRegex, .text = "a"};
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(process.Compile(source).ok()) << "after a kill at any point of its work, also of its answer";
    const ChildKiller killer;
    const absl::Status killed =
        process.Compile({.kind = GrammarKind::kJsonSchema, .text = ManyPatterns(5000)}).status();
    EXPECT_EQ(killed.code(), absl::StatusCode::kUnavailable) << killed;
  }
  EXPECT_TRUE(process.Compile(source).ok());
}

// The kernel lets root have any number of processes, so this process becomes another user.
void BecomeNobody() {
  constexpr uid_t kNobody = 65534;
  const bool is_nobody = setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0;
  if (!is_nobody) std::cerr << "cannot become nobody: " << std::strerror(errno);
}

TEST(CompileProcess, AMachineWithoutRoomForProcessesIsNotTheTextsFault) {
  const auto compile_with_and_without_room = [](const std::string& program) {
    if (geteuid() == 0) BecomeNobody();
    CompileProcess process(program, testing::ByteTokens(), {});
    const GrammarSource source = {.kind = GrammarKind::kRegex, .text = "a"};
    std::cerr << "with room: " << process.Compile(source).status();
    rlimit before = {};
    prlimit(process.pid(), RLIMIT_NPROC, nullptr, &before);
    const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    prlimit(process.pid(), RLIMIT_NPROC, &none, nullptr);
    std::cerr << "; without: " << process.Compile(source).status();
    prlimit(process.pid(), RLIMIT_NPROC, &before, nullptr);
    std::cerr << "; again: " << process.Compile(source).status();
    std::_Exit(0);
  };
  // The other user may not be allowed to look into the build's directory.
  const testing::TempDir directory;
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0755));
  const std::string program = directory.path() + "/program";
  std::filesystem::copy_file(kProgram, program);
  EXPECT_EXIT(compile_with_and_without_room(program), ::testing::ExitedWithCode(0),
              "^with room: OK; without: UNAVAILABLE: cannot fork.*; again: OK$");
}

// XGrammar warns of escapes that it does not know, and quotes them.
TEST(CompileProcess, NothingOfATextGoesToTheLog) {
  const GrammarSource sources[] = {
      {.kind = GrammarKind::kRegex, .text = "secret\\Qtext"},
      {.kind = GrammarKind::kJsonSchema, .text = R"({"type": "string", "pattern": "secret\\Qtext"})"},
      {.kind = GrammarKind::kJsonSchema, .text = R"({"$ref": "#secret"})"},
      {.kind = GrammarKind::kEbnf, .text = "root ::= secret"},
  };
  ::testing::internal::CaptureStderr();
  {
    const GrammarVocabulary vocabulary(testing::ByteTokens());
    CompileProcess process(kProgram, testing::ByteTokens(), {});
    for (const GrammarSource& source : sources) {
      EXPECT_NE(process.Compile(source).status().code(), absl::StatusCode::kUnavailable);
      (void)Grammar::Compile(source, vocabulary);  // in this process
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(CompileProcess, AProgramThatEndsAtOnceIsUnavailable) {
  CompileProcess process("/bin/true", testing::ByteTokens(), {});
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = process.Compile({.kind = GrammarKind::kRegex, .text = "a"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
}

TEST(CompileProcess, AProgramThatIsMissingIsNamed) {
  CompileProcess process("/nowhere/foretoken", testing::ByteTokens(), {});
  const absl::Status status = process.Compile({.kind = GrammarKind::kRegex, .text = "a"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/foretoken"));
}

TEST(GrammarCompiler, GivesOneGrammarForOneText) {
  GrammarCompiler compiler({.program = kProgram}, testing::ByteTokens());
  const GrammarSource source = {.kind = GrammarKind::kRegex, .text = "a+"};
  EXPECT_FALSE(compiler.Find(source).has_value());
  const auto first = compiler.Get(source, kTenant);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*compiler.Get(source, kTenant), *first);
  ASSERT_TRUE(compiler.Find(source).has_value());
  EXPECT_EQ(**compiler.Find(source), *first);
  EXPECT_FALSE(compiler.Find({.kind = GrammarKind::kEbnf, .text = "a+"}).has_value());  // another kind
}

TEST(GrammarCompiler, RemembersRefusals) {
  GrammarCompiler compiler({.program = kProgram, .limits = {.max_time = absl::Milliseconds(100)}},
                           testing::ByteTokens());
  const GrammarSource source = {.kind = GrammarKind::kJsonSchema, .text = ManyPatterns(5000)};
  const absl::Status first = compiler.Get(source, kTenant).status();
  EXPECT_EQ(base::ReasonOf(first), "FORMAT_TOO_COSTLY");
  ASSERT_TRUE(compiler.Find(source).has_value());
  EXPECT_EQ(compiler.Find(source)->status(), first);
}

TEST(GrammarCompiler, DropsTheGrammarThatWasNotUsedForLongest) {
  GrammarCompiler compiler({.program = kProgram, .max_cache_bytes = 1}, testing::ByteTokens());
  const GrammarSource a = {.kind = GrammarKind::kRegex, .text = "a"}, b = {.kind = GrammarKind::kRegex, .text = "b"};
  const auto kept = compiler.Get(a, kTenant);
  ASSERT_TRUE(kept.ok());
  ASSERT_TRUE(compiler.Get(b, kTenant).ok());
  EXPECT_FALSE(compiler.Find(a).has_value());
  EXPECT_TRUE(compiler.Find(b).has_value());  // the newest stays, however large it is
  EXPECT_TRUE(testing::Matches(*kept, "a"));  // a grammar in use lives on
}

GrammarSource Regex(const std::string& text) { return {.kind = GrammarKind::kRegex, .text = text}; }

TEST(GrammarCompiler, CompilesNothingWhileRequestsHoldTooMuch) {
  GrammarCompiler compiler({.program = kProgram, .max_cache_bytes = 1, .max_held_bytes = 1}, testing::ByteTokens());
  auto a = compiler.Get(Regex("a"), kTenant);
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(compiler.num_held_bytes(), 0) << "the cache holds it, too";
  const auto b = compiler.Get(Regex("b"), kTenant);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(compiler.num_held_bytes(), static_cast<int64_t>((*a)->num_bytes()));
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = compiler.Get(Regex("c"), kTenant).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(base::ReasonOf(refused), "GRAMMARS_FULL");
    EXPECT_TRUE(base::IsPassing(refused));
  }
  EXPECT_FALSE(compiler.Find(Regex("c")).has_value()) << "the refusal passes";
  EXPECT_TRUE(compiler.Get(Regex("b"), kTenant).ok()) << "from the cache";
  a = absl::CancelledError("its request has ended");
  EXPECT_EQ(compiler.num_held_bytes(), 0);
  EXPECT_TRUE(compiler.Get(Regex("c"), kTenant).ok());
}

TEST(GrammarCompiler, ATenantHoldsAtMostHalf) {
  const GrammarVocabulary vocabulary(testing::ByteTokens());
  const auto num_bytes = static_cast<int64_t>((*Grammar::Compile(Regex("a"), vocabulary))->num_bytes());
  GrammarCompiler compiler({.program = kProgram, .max_cache_bytes = 1, .max_held_bytes = 4 * num_bytes},
                           testing::ByteTokens());
  std::vector<GrammarCompiler::Result> held;
  for (const char* const text : {"a", "b", "c"}) {  // the cache has the last one
    held.push_back(compiler.Get(Regex(text), "flood"));
    ASSERT_TRUE(held.back().ok()) << held.back().status();
  }
  EXPECT_EQ(compiler.num_held_bytes(), 2 * num_bytes);
  const absl::Status refused = compiler.Get(Regex("d"), "flood").status();
  EXPECT_EQ(base::ReasonOf(refused), "GRAMMARS_FULL");
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("of this tenant's compiled formats"));
  EXPECT_TRUE(compiler.Get(Regex("c"), "flood").ok()) << "from the cache";
  held.push_back(compiler.Get(Regex("d"), "other"));
  EXPECT_TRUE(held.back().ok()) << held.back().status();
  held[0] = held[1] = absl::CancelledError("their requests have ended");
  EXPECT_TRUE(compiler.Get(Regex("e"), "flood").ok());
}

TEST(GrammarCompiler, ATenantThatHoldsNoneGetsOneBesideThoseThatHoldAll) {
  const GrammarVocabulary vocabulary(testing::ByteTokens());
  const auto num_bytes = static_cast<int64_t>((*Grammar::Compile(Regex("a"), vocabulary))->num_bytes());
  GrammarCompiler compiler({.program = kProgram, .max_cache_bytes = 1, .max_held_bytes = 2 * num_bytes},
                           testing::ByteTokens());
  std::vector<GrammarCompiler::Result> held;
  for (const char* const tenant : {"a", "b", "c", "d", "e"}) {  // the cache has the last one
    held.push_back(compiler.Get(Regex(tenant), tenant));
    ASSERT_TRUE(held.back().ok()) << held.back().status();
  }
  EXPECT_EQ(compiler.num_held_bytes(), 4 * num_bytes);
  const absl::Status refused = compiler.Get(Regex("f"), "f").status();
  EXPECT_EQ(base::ReasonOf(refused), "GRAMMARS_FULL");
}

TEST(GrammarCompiler, AGrammarMayOutliveTheCompiler) {
  auto compiler = std::make_unique<GrammarCompiler>(GrammarCompilerOptions{.program = kProgram}, testing::ByteTokens());
  auto grammar = compiler->Get({.kind = GrammarKind::kRegex, .text = "a"}, kTenant);
  compiler.reset();
  EXPECT_TRUE(testing::Matches(*grammar, "a"));
}

TEST(GrammarCompiler, AFaultOfTheProcessIsNotRemembered) {
  GrammarCompiler compiler({.program = "/nowhere/foretoken"}, testing::ByteTokens());
  const GrammarSource source = {.kind = GrammarKind::kRegex, .text = "a"};
  EXPECT_EQ(compiler.Get(source, kTenant).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(compiler.Find(source).has_value());
}

}  // namespace
}  // namespace foretoken::verifier
