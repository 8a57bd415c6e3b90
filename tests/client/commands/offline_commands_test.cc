// SPDX-License-Identifier: Apache-2.0
// quantize, perplexity and selftest as a user runs them. If these tests fail, a command misreads its flags or hides
// its result.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "nlohmann/json.hpp"
#include "tests/client/commands/run_foretoken.h"
#include "tests/testing/child_process.h"
#include "tests/testing/models/random_checkpoint.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string DemoTarget() { return testing::SourcePath("deploy/demo/target"); }

TEST(ForetokenQuantize, WritesACheckpointWhoseCostPerplexityTells) {
  const testing::TempDir dir;
  const std::string quantised = dir.path() + "/new";
  const Outcome outcome = RunShell(absl::StrCat("quantize ", DemoTarget(), " ", quantised, " 2>/dev/null"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("56 matrices of 4 bits, 5.65 MB in place of 14.69 MB"));

  const std::string text = dir.Write("text", std::string(2000, 'a'));
  const std::string flags = absl::StrCat("--window=64 --json ", text);
  const auto stored = nlohmann::json::parse(
      RunShell(absl::StrCat("perplexity --model=", quantised, " --baseline=", DemoTarget(), " ", flags)).out);
  const auto at_load = nlohmann::json::parse(
      RunShell(absl::StrCat("perplexity --model=", DemoTarget(), " --weight_quantization=int4 ", flags)).out);
  EXPECT_EQ(stored["change"], at_load["change"]);
  EXPECT_NE(stored["change"]["ratio"], 1);
  const auto alone = nlohmann::json::parse(RunShell(absl::StrCat("perplexity --model=", quantised, " ", flags)).out);
  EXPECT_FALSE(alone.contains("before"));
  EXPECT_EQ(alone["after"], stored["after"]);
  EXPECT_THAT(RunShell(absl::StrCat("perplexity --window=64 --model=", quantised, " ", text)).out, HasSubstr(" ± "));
}

// Without a standard error, the next file would get its number.
TEST(ForetokenQuantize, WritesNoProgressIntoTheWeights) {
  const testing::TempDir dir;
  std::vector<std::string> weights;
  for (const char* errors : {"/dev/null", "&-"}) {
    const std::string quantised = absl::StrCat(dir.path(), "/", weights.size());
    EXPECT_EQ(RunShell(absl::StrCat("quantize ", DemoTarget(), " ", quantised, " 2>", errors)).exit_code, 0);
    weights.push_back(base::ReadFile(quantised + "/model.safetensors").value());
  }
  EXPECT_TRUE(weights[0] == weights[1]);
}

// Runs quantize, sends it the signal in the middle, and returns its exit code.
int QuantizeWithSignal(int signal, const std::string& quantised) {
  const testing::TempDir dir;
  const std::string errors = dir.path() + "/errors";
  // The first line of progress waits for room in this pipe, so the signal comes in the middle of the run.
  EXPECT_EQ(mkfifo(errors.c_str(), 0600), 0);
  const int reader = open(errors.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  std::string piece(4096, 'x');
  while (write(reader, piece.data(), piece.size()) > 0) continue;
  testing::ChildProcess process({FORETOKEN_BINARY, "quantize", DemoTarget(), quantised}, errors);
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (!std::filesystem::exists(quantised) && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(std::filesystem::exists(quantised));
  process.Signal(signal);
  absl::SleepFor(absl::Seconds(2));  // the process has taken the signal, and cannot end yet
  while (read(reader, piece.data(), piece.size()) > 0) continue;
  const int exit_code = process.Wait();
  close(reader);
  return exit_code;
}

TEST(ForetokenQuantize, AnInterruptLeavesNothing) {
  const auto former = std::signal(SIGHUP, SIG_DFL);
  for (const int signal : {SIGINT, SIGHUP}) {
    const testing::TempDir dir;
    EXPECT_EQ(QuantizeWithSignal(signal, dir.path() + "/new"), 130) << signal;
    EXPECT_FALSE(std::filesystem::exists(dir.path() + "/new")) << signal;
  }
  std::signal(SIGHUP, former);
}

TEST(ForetokenQuantize, OutlivesItsTerminalUnderNohup) {
  const auto former = std::signal(SIGHUP, SIG_IGN);
  const testing::TempDir dir;
  EXPECT_EQ(QuantizeWithSignal(SIGHUP, dir.path() + "/new"), 0);
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/new/config.json"));
  std::signal(SIGHUP, former);
}

// As in `foretoken quantize ... 2>&1 | head -1`.
TEST(ForetokenQuantize, OutlivesTheReaderOfItsProgress) {
  const testing::TempDir dir;
  RunShell(absl::StrCat("quantize ", DemoTarget(), " ", dir.path(), "/new 2>&1 >/dev/null | true"));
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/new/config.json"));
}

TEST(ForetokenQuantize, ALimitForFilesLeavesNothing) {
  const testing::TempDir dir;
  const Outcome outcome = RunShell(absl::StrCat("--version; ulimit -f 100; ", FORETOKEN_BINARY, " quantize ",
                                                DemoTarget(), " ", dir.path(), "/new 2>&1"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/new"));
}

TEST(ForetokenPerplexity, PrintsJsonOfAPathThatIsNotUtf8) {
  const testing::TempDir dir;
  const std::string model = dir.path() + "/\xff", text = dir.Write("text", std::string(200, 'a'));
  std::filesystem::create_directory_symlink(DemoTarget(), model);
  const Outcome outcome = RunShell(absl::StrCat("perplexity --window=32 --json --model=", model, " ", text));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("/\\ufffd, "));
}

TEST(ForetokenPerplexity, ComparesEqualTokensOnly) {
  const testing::TempDir other, dir;
  other.CopyFrom(DemoTarget());
  nlohmann::json tokenizer = base::ReadJson(other.path() + "/tokenizer.json").value();
  auto& vocabulary = tokenizer["model"]["vocab"];
  std::swap(vocabulary["a"], vocabulary["b"]);
  other.Write("tokenizer.json", tokenizer.dump());
  const std::string text = dir.Write("text", std::string(300, 'a') + std::string(300, 'b') + std::string(300, 'c'));
  const std::string command =
      absl::StrCat("perplexity --window=16 --model=", DemoTarget(), " --baseline=", other.path(), " ", text, " 2>&1");
  const Outcome outcome = RunShell(command);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("--baseline: expected a model with the same tokens of this text"));
}

TEST(ForetokenSelftest, TriesEveryWidth) {
  const Outcome outcome = RunShell(
      absl::StrCat("selftest --model=", DemoTarget(), " --tokens=12 --max_width=5 --weight_quantization=int4 abc"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("w4a16-g32"));
  EXPECT_THAT(outcome.out, HasSubstr("10 of 10 texts are equal"));
}

TEST(OfflineCommands, SayWhichAnglesTheyTake) {
  const testing::TempDir dir;
  dir.CopyFrom(testing::RandomCheckpoint("phi3_longrope").directory());
  std::filesystem::copy(testing::SourcePath("deploy/demo/target/tokenizer.json"), dir.path());
  const std::string flags = absl::StrCat("--threads=1 --model=", dir.path());
  const std::string selftest = absl::StrCat("selftest --tokens=2 --max_width=1 abc ", flags);
  EXPECT_THAT(RunShell(selftest).out, HasSubstr(" rope-long\n"));
  EXPECT_THAT(RunShell(selftest + " --max_context_tokens=4096").out, Not(HasSubstr("rope-long")));
  const std::string text = dir.Write("text", std::string(200, 'a'));
  EXPECT_THAT(RunShell(absl::StrCat("perplexity --window=32 ", flags, " ", text)).out, HasSubstr(" rope-long\n"));
}

TEST(OfflineCommands, NameWhatTheyCannotUse) {
  const testing::TempDir dir;
  struct Case {
    std::string arguments;
    std::string message;
  };
  const std::string model = absl::StrCat("--model=", DemoTarget());
  for (const Case& c :
       {Case{"quantize", "expected two arguments"},
        {"quantize a b --bits=5", "--bits: expected 4 or 8, got 5"},
        {"quantize a b --head_bits=1", "--head_bits: expected 0, 4 or 8, got 1"},
        {"quantize a b --group_size=48", "--group_size: expected 32, 64 or 128, got 48"},
        {"quantize /nowhere b", "NOT_FOUND"},
        {"perplexity", "expected one argument: a file with text"},
        {"perplexity x", "--model: expected the directory of a checkpoint"},
        {absl::StrCat("perplexity /no/file ", model), "NOT_FOUND: FILE: cannot read /no/file"},
        {absl::StrCat("perplexity - </dev/null ", model), "the text has 0 tokens"},
        {"selftest", "--model: expected the directory of a checkpoint"},
        {"selftest --model=/nowhere", "NOT_FOUND"},
        {absl::StrCat("selftest --max_width=33 ", model), "--max_width: expected 1 to 32, got 33"},
        {absl::StrCat("selftest --expert_memory_mb=0 ", model), "--expert_memory_mb: expected 1 to 1073741824, got 0"},
        {absl::StrCat("selftest --max_context_tokens=1 ", model), "--max_context_tokens: expected at least 2, got 1"},
        {absl::StrCat("selftest --tokens=1 ", model), "--tokens: expected 2 to 2048, got 1"},
        {absl::StrCat("selftest --tokens=4 --max_width=9 ", model, " abc"),
         "--tokens: expected texts in which a step verifies 8 rows (or a smaller --max_width), got 4 tokens"},
        {absl::StrCat("selftest --weight_quantization=int3 ", model), "weight_quantization"}}) {
    const Outcome outcome = RunShell(absl::StrCat(c.arguments, " 2>&1"));
    EXPECT_EQ(outcome.exit_code, 1) << c.arguments;
    EXPECT_THAT(outcome.out, HasSubstr(c.message)) << c.arguments;
  }
}

}  // namespace
}  // namespace foretoken::client
