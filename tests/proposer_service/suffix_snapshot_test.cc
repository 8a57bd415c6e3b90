// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix_snapshot.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/suffix.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;
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

  // A proposer for a vocabulary learns one output and ends.
  void LearnAndEnd(const std::string& vocabulary) const {
    SuffixProposer proposer(Options());
    ASSERT_TRUE(proposer.AcceptVocabulary(vocabulary).ok());
    const std::unique_ptr<Session> session = proposer.Open({.tenant = "t"});
    session->Want({});
    session->Append(output_);
  }

  // Whether a proposer knows how that output goes on.
  static bool Remembers(SuffixProposer& proposer, const std::string& tenant = "t") {
    const std::unique_ptr<Session> session = proposer.Open({.tenant = tenant});
    proposer.WaitUntilLearned();
    session->Append(std::vector<int32_t>{3, 4, 5});
    const ProposalRequest request = {session.get(), 1};
    const TokenTree tree = proposer.Propose({&request, 1}).front();
    return tree.token_ids == std::vector<int32_t>{6};
  }

  const std::vector<int32_t> output_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::filesystem::path folder_;
  const std::filesystem::path path_;
};

TEST_F(SuffixSnapshotTest, WhatIsWrittenIsRead) {
  const SuffixSnapshot written = {.vocabulary = "abc", .texts = {{"a", {1, 2, 3}}, {"", {}}, {"b", {0x7FFFFFFF, 0}}}};
  ASSERT_TRUE(WriteSnapshot(path_, written).ok());
  const absl::StatusOr<SuffixSnapshot> read = ReadSnapshot(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->vocabulary, "abc");
  ASSERT_EQ(read->texts.size(), 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->texts[i].tenant, written.texts[i].tenant);
    EXPECT_EQ(read->texts[i].tokens, written.texts[i].tokens);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "nothing is left beside it";
}

TEST_F(SuffixSnapshotTest, AFailedWriteLeavesTheOldFile) {
  ASSERT_TRUE(WriteSnapshot(path_, {.vocabulary = "old"}).ok());
  // The file that is written first cannot be made.
  std::filesystem::create_directory(path_.string() + ".unfinished");
  EXPECT_THAT(WriteSnapshot(path_, {.vocabulary = "new"}).ToString(), HasSubstr("unfinished"));
  EXPECT_EQ(ReadSnapshot(path_)->vocabulary, "old");
}

TEST_F(SuffixSnapshotTest, NoFileIsNotFound) { EXPECT_TRUE(absl::IsNotFound(ReadSnapshot(path_).status())); }

TEST_F(SuffixSnapshotTest, EveryDamagedByteIsNoticed) {
  ASSERT_TRUE(WriteSnapshot(path_, {.vocabulary = "v", .texts = {{"a", {1, 2}}}}).ok());
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
  ASSERT_TRUE(WriteSnapshot(path_, {.vocabulary = "v", .texts = {{"a", {1, 2}}}}).ok());
  const std::string good = ReadBytes();
  for (size_t length = 0; length < good.size(); ++length) {
    WriteBytes(good.substr(0, length));
    EXPECT_TRUE(absl::IsDataLoss(ReadSnapshot(path_).status())) << length << " bytes";
  }
  WriteBytes(good + "x");
  EXPECT_TRUE(absl::IsDataLoss(ReadSnapshot(path_).status()));
}

TEST_F(SuffixSnapshotTest, AnotherVersionIsRefusedByName) {
  ASSERT_TRUE(WriteSnapshot(path_, {}).ok());
  std::string bytes = ReadBytes();
  bytes[8] = 2;
  WriteBytes(bytes);
  const absl::Status status = ReadSnapshot(path_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.ToString(), HasSubstr("version: expected 1, got 2"));
}

TEST_F(SuffixSnapshotTest, ARestartedProposerRemembers) {
  LearnAndEnd("v");
  SuffixProposer proposer(Options());
  ASSERT_TRUE(proposer.AcceptVocabulary("v").ok());
  EXPECT_TRUE(Remembers(proposer));
  EXPECT_FALSE(Remembers(proposer, "other tenant"));
}

TEST_F(SuffixSnapshotTest, ASnapshotSurvivesSeveralRestarts) {
  for (int32_t i = 0; i < 3; ++i) LearnAndEnd("v");
  EXPECT_EQ(ReadSnapshot(path_)->texts.size(), 3);
  { SuffixProposer unused(Options()); }
  EXPECT_EQ(ReadSnapshot(path_)->texts.size(), 3) << "a proposer that nobody used changes nothing";
}

TEST_F(SuffixSnapshotTest, ADamagedSnapshotBeginsANewMemory) {
  LearnAndEnd("v");
  std::string bytes = ReadBytes();
  bytes[bytes.size() / 2] ^= 1;
  WriteBytes(bytes);
  {
    SuffixProposer proposer(Options());
    EXPECT_TRUE(proposer.AcceptVocabulary("v").ok());
    EXPECT_FALSE(Remembers(proposer));
  }
  LearnAndEnd("v");
  SuffixProposer proposer(Options());
  EXPECT_TRUE(Remembers(proposer));
}

TEST_F(SuffixSnapshotTest, ASnapshotOfAnotherVocabularyBeginsANewMemory) {
  LearnAndEnd("v");
  SuffixProposer proposer(Options());
  EXPECT_TRUE(proposer.AcceptVocabulary("w").ok());
  EXPECT_FALSE(Remembers(proposer));
}

TEST_F(SuffixSnapshotTest, AVocabularyOnceAcceptedIsTheOnlyOne) {
  SuffixProposer proposer(Options());
  EXPECT_TRUE(proposer.AcceptVocabulary("").ok());
  EXPECT_TRUE(proposer.AcceptVocabulary("v").ok());
  EXPECT_TRUE(proposer.AcceptVocabulary("").ok());
  EXPECT_TRUE(proposer.AcceptVocabulary("v").ok());
  const absl::Status status = proposer.AcceptVocabulary("w");
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.ToString(), HasSubstr("expected v, got w"));
}

TEST_F(SuffixSnapshotTest, IsWrittenFromTimeToTime) {
  SuffixOptions options = Options();
  options.snapshot_interval = absl::Milliseconds(1);
  SuffixProposer proposer(options);
  const std::unique_ptr<Session> session = proposer.Open({});
  session->Want({});
  session->Append(output_);
  proposer.Open({})->Append(output_);
  {
    const std::unique_ptr<Session> other = proposer.Open({});
    other->Want({});
    other->Append(output_);
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!std::filesystem::exists(path_) && absl::Now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(ReadSnapshot(path_).ok());
  EXPECT_EQ(ReadSnapshot(path_)->texts.size(), 1);
}

}  // namespace
}  // namespace foretoken::proposer
