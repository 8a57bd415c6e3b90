// SPDX-License-Identifier: Apache-2.0
// The lock on a file. If this test fails, two processes write the same file and damage it, or a crash leaves a lock
// behind.
#include "common/base/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/testing/temp_dir.h"

namespace foretoken::base {
namespace {

using ::testing::HasSubstr;

TEST(FileLock, HasOneHolderAtATime) {
  const testing::TempDir directory;
  const std::string path = directory.path() + "/lock";
  absl::StatusOr<FileLock> first = FileLock::Take(path);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = FileLock::Take(path).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second));
  EXPECT_THAT(second.ToString(), HasSubstr(path + " is locked by another process"));
  {
    const FileLock moved = *std::move(first);
    EXPECT_FALSE(FileLock::Take(path).ok());
  }
  EXPECT_TRUE(FileLock::Take(path).ok());
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(FileLock, AFileThatCannotBeMadeIsNamed) {
  EXPECT_THAT(FileLock::Take("/nowhere/lock").status().ToString(), HasSubstr("cannot open /nowhere/lock"));
}

}  // namespace
}  // namespace foretoken::base
