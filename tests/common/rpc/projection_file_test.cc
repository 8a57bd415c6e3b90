// SPDX-License-Identifier: Apache-2.0
// If this test fails, proposers and verifiers do not find the projection in the directory that they share.
#include "common/rpc/projection_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "common/base/file_lock.h"
#include "common/base/mapped_file.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::rpc {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

TEST(ProjectionFile, HasTheBytesUnderTheDigestAndNothingUnfinishedIsLeft) {
  const TempDir directory;
  ASSERT_TRUE(WriteProjection(directory.path(), "abc", "bytes").ok());
  EXPECT_EQ(base::ReadFile(ProjectionPath(directory.path(), "abc")).value(), "bytes");
  EXPECT_FALSE(std::filesystem::exists(ProjectionPath(directory.path(), "abc") + ".unfinished"));
}

TEST(ProjectionFile, IsWrittenByOneProcessAtATime) {
  const TempDir directory;
  const std::string path = ProjectionPath(directory.path(), "abc");
  {
    const auto other = base::FileLock::Take(path + ".lock");
    ASSERT_TRUE(other.ok());
    EXPECT_TRUE(WriteProjection(directory.path(), "abc", "bytes").ok());
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  ASSERT_TRUE(WriteProjection(directory.path(), "abc", "bytes").ok());
  EXPECT_EQ(base::ReadFile(path).value(), "bytes");
}

// Proposers that are killed while they write would otherwise fill the disk.
TEST(ProjectionFile, ReplacesWhatACutOffWriterLeft) {
  const TempDir directory;
  directory.Write("abc.projection.unfinished", "longer than the bytes");
  ASSERT_TRUE(WriteProjection(directory.path(), "abc", "bytes").ok());
  EXPECT_EQ(base::ReadFile(ProjectionPath(directory.path(), "abc")).value(), "bytes");
  EXPECT_FALSE(std::filesystem::exists(ProjectionPath(directory.path(), "abc") + ".unfinished"));
}

// Verifiers would otherwise read it in vain, and then the projection from the proposer, at each start.
TEST(ProjectionFile, IsReplacedIfItHasOtherBytes) {
  const TempDir directory;
  const std::string path = ProjectionPath(directory.path(), "abc");
  const std::string bytes = std::string(size_t{3} << 20, 'a') + "bytes";
  std::string other_end = bytes;
  other_end.back() = 'x';
  for (const std::string& present : {std::string("byt"), other_end, bytes + "s", std::string()}) {
    directory.Write("abc.projection", present);
    ASSERT_TRUE(WriteProjection(directory.path(), "abc", bytes).ok());
    EXPECT_EQ(base::ReadFile(path).value(), bytes);
  }
}

TEST(ProjectionFile, IsReadableByVerifiersOfOtherUsersAndNotWrittenTwice) {
  const TempDir directory;
  const std::string path = ProjectionPath(directory.path(), "abc");
  ASSERT_TRUE(WriteProjection(directory.path(), "abc", "bytes").ok());
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions() & perms::others_read, perms::others_read);
  const auto written = std::filesystem::last_write_time(path) - std::chrono::hours(1);
  std::filesystem::last_write_time(path, written);
  ASSERT_TRUE(WriteProjection(directory.path(), "abc", "bytes").ok());
  EXPECT_EQ(std::filesystem::last_write_time(path), written);
}

TEST(ProjectionFile, AMissingDirectoryIsNamed) {
  const TempDir directory;
  EXPECT_THAT(WriteProjection(directory.path() + "/none", "abc", "bytes").message(),
              HasSubstr(directory.path() + "/none/abc.projection"));
}

}  // namespace
}  // namespace foretoken::rpc
