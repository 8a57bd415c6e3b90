// SPDX-License-Identifier: Apache-2.0
// A suffix proposer process and its snapshot file. If this test fails, a damaged file is overwritten or stops the
// proposer, a file of another vocabulary is lost, or two processes write one file.
#include <fstream>
#include <functional>
#include <iterator>

#include "foretoken/v1/proposal.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/child_process.h"
#include "tests/testing/models/other_vocabulary.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct BadSnapshot {
  std::string name;
  std::function<void(std::string&)> spoil;  // changes the bytes of a good file
  std::string reason;                       // in the log
};

class SnapshotTest : public ::testing::Test {
 protected:
  std::string Bytes() const { return Bytes(path_); }
  static std::string Bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A verifier's request teaches the proposer. The proposer must then remember num_outputs outputs; it ends and writes.
  void Learn(ServiceProcess& proposer, int num_outputs, std::vector<std::string> verifier_flags = {}) {
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
    EXPECT_TRUE(WaitUntil([&] { return proposer.Metric("foretoken_suffix_outputs") == num_outputs; }));
    EXPECT_EQ(proposer.Terminate(), 0);
  }

  const testing::TempDir directory_;
  const std::string path_ = directory_.path() + "/outputs";
  const std::vector<std::string> flags_ = {"--method=suffix", "--suffix_snapshot=" + path_,
                                           "--suffix_snapshot_interval=1h"};
};

class SnapshotFile : public SnapshotTest, public ::testing::WithParamInterface<BadSnapshot> {};

TEST_P(SnapshotFile, ThatCannotBeUsedIsNamedAndReplaced) {
  ServiceProcess teacher("foretoken_proposer", flags_);
  EXPECT_THAT(teacher.Log(), Not(HasSubstr("snapshot"))) << "a missing file is no error";
  Learn(teacher, 1);
  std::string bytes = Bytes();
  ASSERT_GT(bytes.size(), 1000);
  GetParam().spoil(bytes);
  directory_.Write("outputs", bytes);

  ServiceProcess proposer("foretoken_proposer", flags_);
  Learn(proposer, 1);
  EXPECT_THAT(proposer.Log(), HasSubstr("suffix snapshot not used, a new memory begins: "));
  EXPECT_THAT(proposer.Log(), HasSubstr(path_));
  EXPECT_THAT(proposer.Log(), HasSubstr(GetParam().reason));
  EXPECT_THAT(proposer.Log(), HasSubstr("the file is kept as " + path_ + ".unused-1"));
  EXPECT_EQ(Bytes(path_ + ".unused-1"), bytes);
  // The file from the end of that process is good.
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
        BadSnapshot{"AnotherVersion", [](std::string& bytes) { bytes[8] = 7; }, "version: expected 2, got 7"}),
    [](const auto& info) { return info.param.name; });

// Vocabularies are separate, so an operator may change the model and change it back.
TEST_F(SnapshotTest, OfAnotherVocabularyStaysAsItIs) {
  ServiceProcess teacher("foretoken_proposer", flags_);
  Learn(teacher, 1);
  const testing::TempDir model;
  testing::WriteModelOfAnotherVocabulary(testing::SourcePath("deploy/demo/target"), model);
  ServiceProcess proposer("foretoken_proposer", flags_);
  // DescribeProposer changes nothing, whatever vocabulary the caller has.
  const auto stub =
      v1::ProposalService::NewStub(grpc::CreateChannel(proposer.address(), grpc::InsecureChannelCredentials()));
  v1::DescribeProposerRequest request;
  request.set_vocabulary_fingerprint("nobody's");
  v1::DescribeProposerResponse response;
  grpc::ClientContext context;
  EXPECT_TRUE(stub->DescribeProposer(&context, request, &response).ok());
  EXPECT_TRUE(WaitUntil([&] { return proposer.Metric("foretoken_suffix_outputs") == 1; }));
  Learn(proposer, 2, {"--model=" + model.path()});
  EXPECT_THAT(proposer.Log(), Not(HasSubstr("not used")));
  ServiceProcess next("foretoken_proposer", flags_);
  EXPECT_THAT(next.Log(), Not(HasSubstr("not used")));
  EXPECT_TRUE(WaitUntil([&] { return next.Metric("foretoken_suffix_outputs") == 2; }));
  EXPECT_EQ(next.Metric("foretoken_suffix_tenants"), 2);
}

TEST_F(SnapshotTest, OfAnotherProcessIsNotTouched) {
  ServiceProcess first("foretoken_proposer", flags_);
  std::vector<std::string> command = flags_;
  command.insert(command.begin(), {std::string(FORETOKEN_BINARY_DIR) + "/foretoken_proposer", "--listen=127.0.0.1:0"});
  const testing::TempDir log;
  testing::ChildProcess second(command, log.path() + "/stderr");
  EXPECT_FALSE(second.WaitForPort());
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(
      Bytes(log.path() + "/stderr"),
      HasSubstr("foretoken_proposer: suffix_snapshot: expected a file of this proposer alone, got one that another "
                "uses: " +
                path_ + ".lock is locked by another process"));
  Learn(first, 1);
  EXPECT_GT(Bytes().size(), 1000);
}

}  // namespace
}  // namespace foretoken
