// SPDX-License-Identifier: Apache-2.0
// The output and exit code of services that cannot start. If this test fails, an operator gets no clear error line, or
// a supervisor sees exit code 0.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/child_process.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

struct BadCommand {
  const char* name;
  std::vector<std::string> flags;
  const char* message;
};

class FailedStart : public ::testing::TestWithParam<BadCommand> {};

TEST_P(FailedStart, IsOneLineAndExitCodeOne) {
  const testing::TempDir directory;
  const std::string errors = directory.path() + "/stderr";
  std::vector<std::string> command = GetParam().flags;
  command.insert(command.begin(), std::string(FORETOKEN_BINARY_DIR) + "/foretoken_verifier");
  testing::ChildProcess verifier(command, errors);
  EXPECT_FALSE(verifier.WaitForPort());
  EXPECT_EQ(verifier.Wait(), 1);
  std::ifstream file(errors);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_THAT(text, ::testing::HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Causes, FailedStart,
    ::testing::Values(BadCommand{"NoModel", {"--listen=127.0.0.1:0"}, "--model: "},
                      BadCommand{"UnknownFlag", {"--modle=/nowhere"}, "unknown flag --modle; is it --model?"},
                      BadCommand{
                          "TwoModels", {"--model=/a", "/b"}, "unexpected argument \"/b\": expected flags and one"},
                      BadCommand{"MissingModelByArgument", {"/nowhere"}, "/nowhere/config.json"},
                      BadCommand{"DashesInFlags",
                                 {"--model=x", "--max-burst-prompt-tokens=-1"},
                                 "--max_burst_prompt_tokens: expected at least 0, got -1"},
                      BadCommand{"MissingModel", {"--model=/nowhere"}, "/nowhere/config.json"},
                      BadCommand{"AnotherFingerprint",
                                 {"--model=" + testing::SourcePath("deploy/demo/target"), "--listen=127.0.0.1:0",
                                  "--numerics_fingerprint=these bits"},
                                 "--numerics_fingerprint: expected \"these bits\", got \"foretoken-"},
                      BadCommand{"RanksThatCannotShareTheHeads",
                                 {"--model=" + testing::SourcePath("deploy/demo/target"), "--tensor_parallel=3"},
                                 "--tensor_parallel: expected a divisor of the model's num_attention_heads 4, got 3"},
                      BadCommand{"TooManyRanks",
                                 {"--model=" + testing::SourcePath("deploy/demo/target"), "--tensor_parallel=65"},
                                 "--tensor_parallel: expected 1 to 64, got 65"},
                      BadCommand{"DeviceThatTheBuildLacks",
                                 {"--model=" + testing::SourcePath("deploy/demo/target"), "--device=cuda"},
                                 "device: this build has only cpu (./dev cuda makes one with cuda), got \"cuda\""},
                      BadCommand{"QuantizationThatTheDeviceLacks",
                                 {"--model=" + testing::SourcePath("deploy/demo/target"), "--weight_quantization=fp8"},
                                 "weight_quantization: fp8 needs the device cuda, got cpu"},
                      BadCommand{"EmbeddedWithoutModel",
                                 {"--model=x", "--proposer=ngram,embedded;draft,embedded"},
                                 "proposer \"draft,embedded\": model: expected"},
                      BadCommand{"EmbeddedWithAnotherMethodsOption",
                                 {"--model=x", "--proposer=ngram,embedded,model=y"},
                                 "proposer \"ngram,embedded,model=y\": option 'model': expected, for ngram, one of "},
                      BadCommand{"EmbeddedOutOfRange",
                                 {"--model=x", "--proposer=suffix,embedded,max_depth=1"},
                                 "proposer \"suffix,embedded,max_depth=1\": suffix_max_depth: expected 2 to "}),
    [](const auto& info) { return info.param.name; });

struct Outcome {
  int exit_code = -1;
  std::string out;
};

// Runs one of the services in a shell.
Outcome RunShell(const std::string& command) {
  std::FILE* pipe = popen((std::string(FORETOKEN_BINARY_DIR) + "/" + command).c_str(), "r");
  Outcome outcome;
  char buffer[4096];
  while (const size_t length = std::fread(buffer, 1, sizeof(buffer), pipe)) outcome.out.append(buffer, length);
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

TEST(Services, ExplainThemselves) {
  for (const char* help : {" --help", " -h", " --helpshort"}) {
    const Outcome verifier = RunShell(std::string("foretoken_verifier") + help);
    EXPECT_EQ(verifier.exit_code, 0);
    EXPECT_THAT(verifier.out, ::testing::HasSubstr("usage: foretoken_verifier [--FLAG=VALUE]... [DIRECTORY"));
    EXPECT_THAT(verifier.out, ::testing::HasSubstr("\n  --max_inter_token_growth (default 1.4)\n"));
    const Outcome proposer = RunShell(std::string("foretoken_proposer") + help);
    EXPECT_EQ(proposer.exit_code, 0);
    EXPECT_THAT(proposer.out, ::testing::HasSubstr("\n  --method (default ngram)\n"));
    EXPECT_THAT(proposer.out, ::testing::HasSubstr("\n  --ngram_max_length (default "));
  }
  for (const std::string name : {"foretoken_verifier", "foretoken_proposer"}) {
    EXPECT_EQ(RunShell(name + " --version").out, name + " " + base::Version() + "\n");
  }
}

TEST(Services, AVerifierTakesItsModelAsTheOnlyArgument) {
  testing::ChildProcess verifier({std::string(FORETOKEN_BINARY_DIR) + "/foretoken_verifier", "--listen=127.0.0.1:0",
                                  testing::SourcePath("deploy/demo/target")});
  EXPECT_TRUE(verifier.WaitForPort().has_value());
  verifier.Signal(SIGTERM);
  EXPECT_EQ(verifier.Wait(), 0);
}

TEST(Services, AProposerSaysHowToNameAModel) {
  const Outcome outcome = RunShell("foretoken_proposer models/draft 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out,
            "foretoken_proposer: unexpected argument \"models/draft\": a draft model is --method=draft "
            "--model=DIRECTORY\n");
}

// A draining verifier logs the time that running requests get, once.
TEST(Services, AVerifierThatDrainsNamesOneTime) {
  const testing::TempDir directory;
  const std::string errors = directory.path() + "/stderr";
  testing::ChildProcess verifier({std::string(FORETOKEN_BINARY_DIR) + "/foretoken_verifier", "--listen=127.0.0.1:0",
                                  "--drain_grace=29s", testing::SourcePath("deploy/demo/target")},
                                 errors);
  ASSERT_TRUE(verifier.WaitForPort().has_value());
  verifier.Signal(SIGTERM);
  EXPECT_EQ(verifier.Wait(), 0);
  std::ifstream file(errors);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, ::testing::HasSubstr("requests get 29s to end"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("5s after"))) << text;
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("at most"))) << text;
}

}  // namespace
}  // namespace foretoken
