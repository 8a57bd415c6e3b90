// SPDX-License-Identifier: Apache-2.0
// The output and exit code of services that cannot start. If this test fails, an operator gets no clear error line, or
// a supervisor sees exit code 0.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/stream_load.h"
#include "tests/testing/child_process.h"
#include "tests/testing/models/safetensors_writer.h"
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
                      BadCommand{"DirectoryThatIsNotThere",
                                 {"--model=x", "--projection_directory=/nowhere"},
                                 "--projection_directory: expected a directory, got \"/nowhere\""},
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

// Runs one of the programs in a shell.
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

// A variable of the shell that is unset must turn no protection off.
TEST(Services, RefuseAnEmptyProtection) {
  const std::vector<std::string> of_both = {"tls_certificate", "tls_key", "tls_client_ca", "tls_client_identities"};
  const std::vector<std::string> of_verifier = {
      "token_file",       "proposer_tls_ca",         "proposer_tls_certificate",
      "proposer_tls_key", "proposer_tls_identities", "numerics_fingerprint"};
  const auto expect_refused = [](const std::string& program, const std::vector<std::string>& flags) {
    for (const std::string& flag : flags) {
      const Outcome outcome = RunShell(program + " --model=/nowhere --" + flag + "= 2>&1");
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_EQ(outcome.out, program + ": --" + flag + ": expected a value, got none\n");
    }
  };
  expect_refused("foretoken_verifier", of_both);
  expect_refused("foretoken_verifier", of_verifier);
  expect_refused("foretoken_proposer", of_both);
}

// Abseil's own flags read other flags from a file or the environment, without that check.
TEST(Programs, KnowNoFlagsThatReadFlags) {
  for (const std::string program : {"foretoken_verifier", "foretoken_proposer", "foretoken generate"}) {
    for (const std::string flag : {"flagfile", "fromenv", "tryfromenv"}) {
      const Outcome outcome = RunShell(program + " --" + flag + "=tls_key two arguments 2>&1");
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_THAT(outcome.out, ::testing::StartsWith(program + ": unknown flag --" + flag));
    }
  }
}

TEST(Services, AProposerSaysHowToNameAModel) {
  const Outcome outcome = RunShell("foretoken_proposer models/draft 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out,
            "foretoken_proposer: unexpected argument \"models/draft\": a draft model is --method=draft "
            "--model=DIRECTORY\n");
}

// A flag that changes nothing misleads: without --method=suffix nobody writes a snapshot. The address ends a proposer
// that takes the flags.
TEST(Services, AProposerRefusesTheOptionsOfAnotherMethod) {
  const std::string program = "foretoken_proposer --listen=nonsense ";
  for (const std::string flags : {"--suffix_snapshot=/nowhere/outputs", "--threads=2", "--method=suffix --threads=2",
                                  "--method=draft --model=/nowhere --ngram_max_length=4"}) {
    const Outcome outcome = RunShell(program + flags + " 2>&1");
    EXPECT_EQ(outcome.exit_code, 1);
    const std::string wrong = flags.substr(flags.rfind("--"), flags.rfind('=') - flags.rfind("--"));
    EXPECT_THAT(outcome.out, ::testing::HasSubstr(wrong + ": expected, for --method=")) << flags;
  }
  for (const std::string flags : {"--threads=0", "--method=suffix --suffix_snapshot=/nowhere/outputs"}) {
    EXPECT_THAT(RunShell(program + flags + " 2>&1").out, ::testing::Not(::testing::HasSubstr("--method="))) << flags;
  }
}

TEST(Services, AProposerRefusesTwoFlagsWithOnePortBeforeItLoadsAModel) {
  const Outcome outcome = RunShell(
      "foretoken_proposer --method=draft --model=/nowhere --listen=127.0.0.1:50052 --metrics_listen=0.0.0.0:50052 "
      "2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("--metrics_listen: expected another port than that of "
                                                "--listen=127.0.0.1:50052, got \"0.0.0.0:50052\""));
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

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// Makes a checkpoint of the demo's first layer, with an MLP of 257 MiB. The file of weights is a hole after its header.
void WriteSparseCheckpoint(const testing::TempDir& directory) {
  constexpr int64_t kEmbed = 256, kKv = 128, kVocabulary = 4096, kFfn = 175'616;
  directory.CopyFrom(testing::SourcePath("deploy/demo/target"));
  nlohmann::json config = ReadJson(directory.path() + "/config.json");
  config["num_hidden_layers"] = 1;
  config["intermediate_size"] = kFfn;
  std::ofstream(directory.path() + "/config.json") << config;
  nlohmann::json header;
  int64_t num_bytes = 0;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    int64_t size = 2;  // bf16
    for (const int64_t length : shape) size *= length;
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {num_bytes, num_bytes + size}}};
    num_bytes += size;
  };
  const std::string layer = "model.layers.0.";
  add("model.embed_tokens.weight", {kVocabulary, kEmbed});
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(layer + norm + ".weight", {kEmbed});
  add("model.norm.weight", {kEmbed});
  for (const char* name : {"q_proj", "o_proj"}) add(layer + "self_attn." + name + ".weight", {kEmbed, kEmbed});
  for (const char* name : {"k_proj", "v_proj"}) add(layer + "self_attn." + name + ".weight", {kKv, kEmbed});
  for (const char* name : {"gate_proj", "up_proj"}) add(layer + "mlp." + name + ".weight", {kFfn, kEmbed});
  add(layer + "mlp.down_proj.weight", {kEmbed, kFfn});
  const std::string path = directory.path() + "/model.safetensors";
  const std::string bytes = testing::SafetensorsBytes(header.dump(), 0);
  std::ofstream(path, std::ios::binary) << bytes;
  std::filesystem::resize_file(path, bytes.size() + static_cast<size_t>(num_bytes));
}

struct LoadingService {
  const char* name;
  std::vector<std::string> command;  // the directory of a model follows the last word
};

class Loading : public ::testing::TestWithParam<LoadingService> {};

TEST_P(Loading, EndsAtOnceOnASignal) {
  const testing::TempDir directory;
  WriteSparseCheckpoint(directory);
  std::vector<std::string> command = GetParam().command;
  command.front() = std::string(FORETOKEN_BINARY_DIR) + "/" + command.front();
  command.back() += directory.path();
  testing::ChildProcess service(command);
  ASSERT_TRUE(WaitUntil([&] {
    std::ifstream maps("/proc/" + std::to_string(service.pid()) + "/maps");
    return std::string((std::istreambuf_iterator<char>(maps)), {}).find(directory.path()) != std::string::npos;
  })) << "it reads no weights";
  service.Signal(SIGTERM);
  EXPECT_EQ(service.Wait(), 128 + SIGTERM);
}

// The second verifier never comes to its own model, which does not exist: it loads its embedded proposers first.
INSTANTIATE_TEST_SUITE_P(
    Services, Loading,
    ::testing::Values(LoadingService{"Verifier", {"foretoken_verifier", "--listen=127.0.0.1:0", "--model="}},
                      LoadingService{"VerifierWithAnEmbeddedProposer",
                                     {"foretoken_verifier", "--model=/nowhere", "--proposer=draft,embedded,model="}},
                      LoadingService{"Proposer",
                                     {"foretoken_proposer", "--listen=127.0.0.1:0", "--method=draft", "--model="}}),
    [](const auto& info) { return info.param.name; });

// Runs a program that cannot start, and returns the lines of its standard error as JSON objects.
std::vector<nlohmann::json> JsonLinesOfFailedStart(std::vector<std::string> command) {
  const testing::TempDir directory;
  const std::string errors = directory.path() + "/stderr";
  command.front() = std::string(FORETOKEN_BINARY_DIR) + "/" + command.front();
  command.insert(command.end(), {"--listen=127.0.0.1:0", "--log_format=json"});
  testing::ChildProcess service(command, errors);
  EXPECT_FALSE(service.WaitForPort());
  EXPECT_EQ(service.Wait(), 1);
  std::ifstream file(errors);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(object.is_object()) << line;
    if (object.is_object()) lines.push_back(object);
  }
  return lines;
}

// Starts a verifier that is told a wrong numerics fingerprint.
std::vector<nlohmann::json> JsonLinesWithFingerprint(const testing::TempDir& model, const std::string& fingerprint) {
  return JsonLinesOfFailedStart(
      {"foretoken_verifier", "--model=" + model.path(), "--numerics_fingerprint=" + fingerprint, "--threads=1"});
}

TEST(JsonLog, HasOnlyObjectsWhileALargeModelIsLoaded) {
  const testing::TempDir directory;
  WriteSparseCheckpoint(directory);
  // The first error names all of the fingerprint but the digest of the weights. So the second comes after the load.
  const std::vector<nlohmann::json> early = JsonLinesWithFingerprint(directory, "these bits");
  ASSERT_EQ(early.size(), 1);
  const std::string message = early[0]["message"].get<std::string>();
  const size_t begin = message.find("got \"") + 5;
  const std::vector<nlohmann::json> lines =
      JsonLinesWithFingerprint(directory, message.substr(begin, message.find(" ...", begin) - begin) + " 0");
  ASSERT_GE(lines.size(), 3) << nlohmann::json(lines);
  EXPECT_THAT(lines[0]["message"].get<std::string>(), ::testing::StartsWith("loading "));
  EXPECT_THAT(lines.back()["message"].get<std::string>(),
              ::testing::StartsWith("foretoken_verifier: --numerics_fingerprint: expected"));
  EXPECT_EQ(lines.back()["level"], "critical");
}

TEST(JsonLog, TheErrorThatEndsAProposerIsAnObject) {
  const std::vector<nlohmann::json> lines =
      JsonLinesOfFailedStart({"foretoken_proposer", "--method=draft", "--model=/nowhere"});
  ASSERT_EQ(lines.size(), 1);
  EXPECT_THAT(lines[0]["message"].get<std::string>(), ::testing::HasSubstr("/nowhere/config.json"));
}

// A program that ends without a word would be a riddle.
TEST(Services, NameTheErrorThatEndsThemEvenWithoutALog) {
  const Outcome outcome = RunShell("foretoken_verifier --log_level=off --model=/nowhere 2>&1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, ::testing::StartsWith("foretoken_verifier: "));
}

}  // namespace
}  // namespace foretoken
