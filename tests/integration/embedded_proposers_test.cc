// SPDX-License-Identifier: Apache-2.0
// Proposers of every method inside the verifier's process. If this test fails, --proposer=METHOD,embedded saves no
// steps, changes tokens, or ignores its options.
#include <signal.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/models/other_vocabulary.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

std::string Draft(const std::string& directory) {
  return absl::StrCat("draft,embedded,model=", directory, ",threads=1");
}

std::vector<std::string> ConnectedProposers(client::GenerationClient& client) {
  std::vector<std::string> names;
  const auto info = client.GetModelInfo();
  for (const auto& proposer : info.value().proposers()) {
    if (proposer.num_connected() > 0) names.push_back(proposer.proposer());
  }
  return names;
}

class EmbeddedProposers : public ::testing::TestWithParam<std::string> {};

TEST_P(EmbeddedProposers, GetGuessesAcceptedAndChangeNoToken) {
  ServiceProcess verifier("foretoken_verifier", {"--proposer=" + GetParam()});
  {
    client::GenerationClient client = Connect(verifier);
    StreamLoad load(client);
    EXPECT_TRUE(load.AcceptsMore()) << "the test proves nothing: no guess is accepted";
    load.ExpectTheTokensOfNoSpeculation();
  }
  EXPECT_EQ(verifier.Terminate(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, EmbeddedProposers,
    ::testing::Values("ngram,embedded,max_length=6", "suffix,embedded,max_sessions=64",
                      Draft(testing::SourcePath("deploy/demo/draft")),
                      absl::StrCat("ngram,embedded;suffix,embedded;", Draft(testing::SourcePath("deploy/demo/draft")))),
    [](const auto& info) { return std::string(info.index == 3 ? "All" : info.param.substr(0, info.param.find(','))); });

TEST(EmbeddedSuffix, WritesItsSnapshotWhenTheVerifierEndsAndReadsItAtTheStart) {
  const testing::TempDir directory;
  const std::string snapshot = directory.path() + "/outputs";
  const std::string flag = absl::StrCat("--proposer=suffix,embedded,snapshot=", snapshot, ",snapshot_interval=1h");
  std::map<int, std::vector<uint32_t>> outputs;
  {
    ServiceProcess verifier("foretoken_verifier", {flag});
    {
      client::GenerationClient client = Connect(verifier);
      StreamLoad load(client);
      EXPECT_TRUE(load.AcceptsMore());
      outputs = load.Outputs();
    }
    EXPECT_FALSE(std::filesystem::exists(snapshot));
    EXPECT_EQ(verifier.Terminate(), 0);
  }
  EXPECT_TRUE(std::filesystem::exists(snapshot));
  ServiceProcess verifier("foretoken_verifier", {flag});
  EXPECT_THAT(verifier.Log(), HasSubstr(absl::StrCat(snapshot, ": ", outputs.size(), " outputs")));
}

TEST(EmbeddedDraft, MayBeAQuantisedCheckpoint) {
  const testing::TempDir directory;
  const std::string quantised = directory.path() + "/draft";
  const std::string command =
      absl::StrCat(FORETOKEN_BINARY_DIR, "/foretoken quantize --bits=8 ", testing::SourcePath("deploy/demo/draft"), " ",
                   quantised, " >/dev/null 2>&1");
  ASSERT_EQ(std::system(command.c_str()), 0);
  ServiceProcess verifier("foretoken_verifier", {"--proposer=" + Draft(quantised)});
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client);
  EXPECT_TRUE(load.AcceptsMore());
  load.ExpectTheTokensOfNoSpeculation();
}

TEST(EmbeddedDraft, OfAnotherVocabularyIsRefusedByNameAndTheVerifierServes) {
  const testing::TempDir directory;
  testing::WriteModelOfAnotherVocabulary(testing::SourcePath("deploy/demo/draft"), directory);
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram,embedded;" + Draft(directory.path())});
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client);
  EXPECT_TRUE(load.AcceptsMore()) << "the n-gram proposer has no accepted guess";
  load.ExpectTheTokensOfNoSpeculation();
  EXPECT_TRUE(WaitUntil([&] {
    return absl::StrContains(verifier.Log(), absl::StrCat("token id ", testing::kOtherWordId, " is the first"));
  })) << verifier.Log();
  EXPECT_THAT(verifier.Log(),
              HasSubstr("proposer draft at embedded: DescribeProposer: \"vocabulary_fingerprint: expected"));
  EXPECT_THAT(ConnectedProposers(client), ::testing::ElementsAre("ngram"));
}

}  // namespace
}  // namespace foretoken
