// SPDX-License-Identifier: Apache-2.0
// A suffix proposer process whose snapshot file cannot be used starts all the same, says why, and remembers anew.
#include <fstream>
#include <functional>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/other_vocabulary.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct BadSnapshot {
  std::string name;
  std::function<void(std::string&)> spoil;  // the bytes of a good one
  std::string reason;                       // in the log
};

class SnapshotTest : public ::testing::Test {
 protected:
  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A verifier's request teaches the proposer, which ends and writes.
  void Learn(ServiceProcess& proposer, std::vector<std::string> verifier_flags = {}) {
    {
      verifier_flags.push_back("--proposer=suffix=static:" + proposer.address());
      ServiceProcess verifier("foretoken_verifier", verifier_flags);
      client::GenerationClient client = Connect(verifier);
      EXPECT_TRUE(WaitUntil([&] { return NumConnected(client) == 1; }));
      v1::GenerateRequest request = RepetitiveRequest(0);
      const std::vector<uint32_t> tokens = client.Generate(request).value().samples.at(0).token_ids;
      request.mutable_speculation()->set_mode(v1::SPECULATION_MODE_OFF);
      EXPECT_EQ(tokens, client.Generate(request).value().samples.at(0).token_ids);
    }
    EXPECT_TRUE(WaitUntil([&] { return proposer.Metric("foretoken_suffix_outputs") > 0; }));
    EXPECT_EQ(proposer.Terminate(), 0);
  }

  const testing::TempDir directory_;
  const std::string path_ = directory_.path() + "/outputs";
  const std::vector<std::string> flags_ = {"--method=suffix", "--suffix_snapshot=" + path_,
                                           "--suffix_snapshot_interval=1h"};
};

class SnapshotFile : public SnapshotTest, public ::testing::WithParamInterface<BadSnapshot> {};

TEST_P(SnapshotFile, ThatCannotBeUsedIsNamedAndBegunAnew) {
  ServiceProcess teacher("foretoken_proposer", flags_);
  EXPECT_THAT(teacher.Log(), Not(HasSubstr("snapshot"))) << "no file is no error";
  Learn(teacher);
  std::string bytes = Bytes();
  ASSERT_GT(bytes.size(), 1000);
  GetParam().spoil(bytes);
  directory_.Write("outputs", bytes);

  ServiceProcess proposer("foretoken_proposer", flags_);
  Learn(proposer);
  EXPECT_THAT(proposer.Log(), HasSubstr("suffix snapshot not used, a new memory begins: "));
  EXPECT_THAT(proposer.Log(), HasSubstr(path_));
  EXPECT_THAT(proposer.Log(), HasSubstr(GetParam().reason));
  // What it wrote at its end is good.
  ServiceProcess next("foretoken_proposer", flags_);
  EXPECT_THAT(next.Log(), HasSubstr(path_ + ": "));
  EXPECT_THAT(next.Log(), Not(HasSubstr("not used")));
  EXPECT_EQ(next.Metric("foretoken_suffix_snapshot_bytes"), static_cast<double>(Bytes().size()));
  EXPECT_GT(next.Metric("foretoken_suffix_snapshot_timestamp_seconds"), 1e9);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, SnapshotFile,
    ::testing::Values(
        BadSnapshot{"Damaged", [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; },
                    "damaged or truncated: its checksum differs"},
        BadSnapshot{"Truncated", [](std::string& bytes) { bytes.resize(bytes.size() / 2); }, "damaged or truncated"},
        BadSnapshot{"Empty", [](std::string& bytes) { bytes.clear(); }, "expected 8 more bytes, got 0"},
        BadSnapshot{"AnotherFile", [](std::string& bytes) { bytes = std::string(4096, 'x'); },
                    "no snapshot of a suffix proposer"},
        BadSnapshot{"AnotherVersion", [](std::string& bytes) { bytes[8] = 7; }, "version: expected 1, got 7"}),
    [](const auto& info) { return info.param.name; });

TEST_F(SnapshotTest, OfAnotherVocabularyIsNamedAndBegunAnew) {
  ServiceProcess teacher("foretoken_proposer", flags_);
  Learn(teacher);
  const testing::TempDir model;
  testing::WriteModelOfAnotherVocabulary(testing::SourcePath("deploy/demo/target"), model);
  // The proposer cannot know before a verifier comes.
  ServiceProcess proposer("foretoken_proposer", flags_);
  Learn(proposer, {"--model=" + model.path()});
  EXPECT_THAT(proposer.Log(), HasSubstr("suffix snapshot not used, a new memory begins: " + path_ + ": vocabulary: "));
  // What it wrote at its end is of that vocabulary.
  ServiceProcess next("foretoken_proposer", flags_);
  Learn(next, {"--model=" + model.path()});
  EXPECT_THAT(next.Log(), Not(HasSubstr("not used")));
}

}  // namespace
}  // namespace foretoken
