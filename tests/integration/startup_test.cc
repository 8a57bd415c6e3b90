// SPDX-License-Identifier: Apache-2.0
// What a verifier that cannot start leaves behind: one line that says why, and exit code 1.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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
                                 "device: this build has cpu, and cuda only if made by ./dev cuda; got \"cuda\""},
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

}  // namespace
}  // namespace foretoken
