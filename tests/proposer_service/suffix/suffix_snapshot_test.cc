// SPDX-License-Identifier: Apache-2.0
// If these tests fail, a suffix proposer forgets its outputs in a restart, starts with damaged data or destroys its
// file.
#include "proposer_service/suffix/suffix_snapshot.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/suffix/suffix.h"
#include "tests/testing/cases/tree_columns.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SuffixSnapshotTest : public ::testing::Test {
 protected:
  SuffixSnapshotTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ::testing::UnitTest::GetInstance()->current_test_info()->name()),
        path_(folder_ / "suffix.snapshot") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~SuffixSnapshotTest() override { std::filesystem::remove_all(folder_); }

  std::string ReadBytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void WriteBytes(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  SuffixOptions Options() const { return {.snapshot_path = path_}; }

  std::unique_ptr<SuffixProposer> Start() const {
    absl::StatusOr<std::unique_ptr<SuffixProposer>> proposer = SuffixProposer::Create(Options());
    EXPECT_TRUE(proposer.ok()) << proposer.status();
    return *std::move(proposer);
  }

  // A proposer learns one output of a vocabulary and ends.
  void LearnAndEnd(const std::string& vocabulary) const {
    const std::unique_ptr<SuffixProposer> proposer = Start();
    const std::unique_ptr<Session> session = proposer->Open({.tenant = "t", .vocabulary = vocabulary});
    session->Want({});
    session->Append(output_);
  }

  // Whether a proposer knows the continuation of that output.
  static bool Remembers(SuffixProposer& proposer, const std::string& vocabulary, const std::string& tenant = "t") {
    const std::unique_ptr<Session> session = proposer.Open({.tenant = tenant, .vocabulary = vocabulary});
    proposer.WaitUntilLearned();
    session->Append(std::vector<int32_t>{3, 4, 5});
    const ProposalRequest request = {session.get(), 1};
    const TokenTree tree = proposer.Propose({&request, 1}).front();
    return testing::TokenIds(tree) == std::vector<int32_t>{6};
  }

  std::vector<std::string> FilesBeside() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  const std::vector<int32_t> output_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::filesystem::path folder_;
  const std::filesystem::path path_;
};

TEST_F(SuffixSnapshotTest, WrittenTextsAreRead) {
  const std::vector<SuffixText> written = {
      {{"v", "a"}, {1, 2, 3}}, {{"", ""}, {}}, {{"w", "a"}, {4}}, {{"v", "b"}, {0x7FFFFFFE, 0}}};
  ASSERT_TRUE(WriteSnapshot(path_, written).ok());
  const absl::StatusOr<std::vector<SuffixText>> read = ReadSnapshot(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), written.size());
  for (size_t i = 0; i < written.size(); ++i) {
    EXPECT_EQ((*read)[i].owner, written[i].owner);
    EXPECT_EQ((*read)[i].tokens, written[i].tokens);
  }
  EXPECT_THAT(FilesBeside(), ElementsAre("suffix.snapshot")) << "no other file is left";
}

// A file of version 1: one vocabulary, before the number of texts.
TEST_F(SuffixSnapshotTest, AFileOfOneVocabularyIsRead) {
  std::string bytes = "FTSUFFIX";
  const auto put = [&](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  const auto put_string = [&](const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    bytes += text;
  };
  put(uint32_t{1});
  put_string("v");
  put(uint64_t{2});
  for (const char* tenant : {"a", "b"}) {
    put_string(tenant);
    put(uint32_t{1});
    put(int32_t{7});
  }
  base::Sha256 sha;
  sha.Update(bytes);
  const base::Sha256Digest digest = sha.Finish();
  bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  WriteBytes(bytes);
  const absl::StatusOr<std::vector<SuffixText>> read = ReadSnapshot(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2);
  EXPECT_EQ(read->back().owner, (SuffixOwner{.vocabulary = "v", .tenant = "b"}));
  EXPECT_EQ(read->back().tokens, std::vector<int32_t>{7});
}

TEST_F(SuffixSnapshotTest, AFailedWriteLeavesTheOldFile) {
  ASSERT_TRUE(WriteSnapshot(path_, std::vector<SuffixText>{{{"old", ""}, {}}}).ok());
  // The folder blocks the name of the unfinished file.
  std::filesystem::create_directory(path_.string() + ".unfinished");
  EXPECT_THAT(WriteSnapshot(path_, std::vector<SuffixText>{{{"new", ""}, {}}}).ToString(), HasSubstr("unfinished"));
  EXPECT_EQ(ReadSnapshot(path_)->front().owner.vocabulary, "old");
}

TEST_F(SuffixSnapshotTest, NoFileIsNotFound) { EXPECT_TRUE(absl::IsNotFound(ReadSnapshot(path_).status())); }

TEST_F(SuffixSnapshotTest, EveryDamagedByteIsNoticed) {
  ASSERT_TRUE(WriteSnapshot(path_, std::vector<SuffixText>{{{"v", "a"}, {1, 2}}}).ok());
  const std::string good = ReadBytes();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 4;
    WriteBytes(bad);
    EXPECT_FALSE(ReadSnapshot(path_).ok()) << "byte " << i;
    EXPECT_THAT(ReadSnapshot(path_).status().ToString(), HasSubstr(path_.string()));
  }
}

TEST_F(SuffixSnapshotTest, EveryTruncationIsNoticed) {
  ASSERT_TRUE(WriteSnapshot(path_, std::vector<SuffixText>{{{"v", "a"}, {1, 2}}}).ok());
  const std::string good = ReadBytes();
  for (size_t length = 0; length < good.size(); ++length) {
    WriteBytes(good.substr(0, length));
    EXPECT_TRUE(absl::IsDataLoss(ReadSnapshot(path_).status())) << length << " bytes";
  }
  WriteBytes(good + "x");
  EXPECT_TRUE(absl::IsDataLoss(ReadSnapshot(path_).status()));
}

TEST_F(SuffixSnapshotTest, IdsThatNoVocabularyHasAreRefused) {
  for (const int32_t token_id : {-1, 0x7FFFFFFF}) {
    ASSERT_TRUE(WriteSnapshot(path_, std::vector<SuffixText>{{{"v", "a"}, {1, token_id}}}).ok());
    const absl::Status status = ReadSnapshot(path_).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << token_id;
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("got ", token_id)));
  }
}

TEST_F(SuffixSnapshotTest, AnotherVersionIsRefusedByName) {
  ASSERT_TRUE(WriteSnapshot(path_, {}).ok());
  std::string bytes = ReadBytes();
  bytes[8] = 3;
  WriteBytes(bytes);
  const absl::Status status = ReadSnapshot(path_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.ToString(), HasSubstr("version: expected 2, got 3"));
}

TEST_F(SuffixSnapshotTest, ARestartedProposerRemembers) {
  LearnAndEnd("v");
  const std::unique_ptr<SuffixProposer> proposer = Start();
  EXPECT_TRUE(Remembers(*proposer, "v"));
  EXPECT_FALSE(Remembers(*proposer, "v", "other tenant"));
}

TEST_F(SuffixSnapshotTest, ASnapshotSurvivesSeveralRestarts) {
  for (int32_t i = 0; i < 3; ++i) LearnAndEnd("v");
  EXPECT_EQ(ReadSnapshot(path_)->size(), 3);
  const std::string bytes = ReadBytes();
  Start()->WaitUntilLearned();
  EXPECT_EQ(ReadBytes(), bytes) << "an unused proposer does not change the file";
}

TEST_F(SuffixSnapshotTest, ADamagedSnapshotIsKeptAndANewMemoryBegins) {
  for (int32_t i = 1; i <= 2; ++i) {
    LearnAndEnd("v");
    std::string bytes = ReadBytes();
    bytes[bytes.size() / 2] ^= 1;
    WriteBytes(bytes);
    EXPECT_FALSE(Remembers(*Start(), "v"));
    EXPECT_FALSE(std::filesystem::exists(path_));
    std::ifstream kept(path_.string() + ".unused-" + std::to_string(i), std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}), bytes);
  }
  LearnAndEnd("v");
  EXPECT_TRUE(Remembers(*Start(), "v"));
  EXPECT_THAT(FilesBeside(), ElementsAre("suffix.snapshot", "suffix.snapshot.lock", "suffix.snapshot.unused-1",
                                         "suffix.snapshot.unused-2"));
}

// The proposer must not move such a path away. An operator may have given a wrong path, or the disk may be unreadable.
TEST_F(SuffixSnapshotTest, AFolderIsAnErrorAndStays) {
  std::filesystem::create_directory(path_);
  EXPECT_THAT(SuffixProposer::Create(Options()).status().ToString(), HasSubstr("is not a regular file"));
  EXPECT_TRUE(std::filesystem::is_directory(path_));
}

// The flag may name a file of somebody else, as after a typing error.
TEST_F(SuffixSnapshotTest, AFileThatIsNoSnapshotIsAnErrorAndStays) {
  WriteBytes("root:x:0:0\n");
  EXPECT_THAT(SuffixProposer::Create(Options()).status().ToString(),
              HasSubstr(path_.string() + " is no snapshot of a suffix proposer"));
  EXPECT_EQ(ReadBytes(), "root:x:0:0\n");
  EXPECT_THAT(FilesBeside(), ElementsAre("suffix.snapshot"));
}

TEST_F(SuffixSnapshotTest, AFileWhoseBeginningWasDamagedIsKeptWhereAProposerWasBefore) {
  LearnAndEnd("v");
  std::string bytes = ReadBytes();
  bytes[0] ^= 1;
  WriteBytes(bytes);
  EXPECT_FALSE(Remembers(*Start(), "v"));
  EXPECT_TRUE(std::filesystem::exists(path_.string() + ".unused-1"));
}

TEST_F(SuffixSnapshotTest, AFileHasOneProposerAtATime) {
  {
    const std::unique_ptr<SuffixProposer> proposer = Start();
    const absl::Status status = SuffixProposer::Create(Options()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status));
    EXPECT_THAT(status.ToString(), HasSubstr("suffix_snapshot: expected a file of this proposer alone"));
    EXPECT_THAT(status.ToString(), HasSubstr(path_.string()));
  }
  EXPECT_TRUE(SuffixProposer::Create(Options()).ok());
}

TEST_F(SuffixSnapshotTest, VocabulariesAreSeparateAndOutliveEachOther) {
  LearnAndEnd("v");
  {
    const std::unique_ptr<SuffixProposer> proposer = Start();
    EXPECT_FALSE(Remembers(*proposer, "w"));
    EXPECT_FALSE(Remembers(*proposer, ""));
    EXPECT_TRUE(Remembers(*proposer, "v"));
  }
  LearnAndEnd("w");
  const std::unique_ptr<SuffixProposer> proposer = Start();
  EXPECT_TRUE(Remembers(*proposer, "v"));
  EXPECT_TRUE(Remembers(*proposer, "w"));
}

TEST_F(SuffixSnapshotTest, IsWrittenFromTimeToTime) {
  SuffixOptions options = Options();
  options.snapshot_interval = absl::Milliseconds(1);
  const std::unique_ptr<SuffixProposer> proposer = *SuffixProposer::Create(options);
  const std::unique_ptr<Session> session = proposer->Open({});
  session->Want({});
  session->Append(output_);
  proposer->Open({})->Append(output_);
  {
    const std::unique_ptr<Session> other = proposer->Open({});
    other->Want({});
    other->Append(output_);
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!std::filesystem::exists(path_) && absl::Now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(ReadSnapshot(path_).ok());
  EXPECT_EQ(ReadSnapshot(path_)->size(), 1);
}

}  // namespace
}  // namespace foretoken::proposer
