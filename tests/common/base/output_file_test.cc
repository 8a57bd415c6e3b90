// SPDX-License-Identifier: Apache-2.0
// Files that are written in pieces. If these tests fail, a part of a file passes for the whole, or an error does not
// say why a file could not be written.
#include "common/base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>

#include "common/base/mapped_file.h"
#include "common/base/write_file.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::base {
namespace {

using ::testing::HasSubstr;

TEST(OutputFile, HoldsThePiecesOnceItIsFinished) {
  const testing::TempDir dir;
  const std::string path = dir.Write("file", "a former content");
  {
    auto file = OutputFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(file->Append("one ").ok());
    OutputFile moved = *std::move(file);
    EXPECT_TRUE(moved.Append("").ok());
    EXPECT_TRUE(moved.Append("two").ok());
    EXPECT_TRUE(moved.Finish().ok());
  }
  EXPECT_EQ(ReadFile(path).value(), "one two");
}

TEST(OutputFile, IsRemovedIfItIsNotFinished) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/file";
  ASSERT_TRUE(OutputFile::Create(path)->Append("one").ok());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(OutputFile, SaysWhyItCannotBeWritten) {
  EXPECT_THAT(OutputFile::Create("/nowhere/file").status().ToString(),
              HasSubstr("cannot create /nowhere/file: No such file or directory"));
  const testing::TempDir dir;
  const std::string path = dir.path() + "/file";
  const testing::FileSizeLimit limit(100);
  for (const absl::Status& status :
       {OutputFile::Create(path)->Append(std::string(200, 'x')), WriteFile(path, std::string(200, 'x'))}) {
    EXPECT_THAT(status.ToString(), ::testing::AllOf(HasSubstr("cannot write " + path), HasSubstr("File too large")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// A process that was killed may have left an unfinished file, with another mode.
TEST(ReplaceFile, KeepsTheModeOfTheFormerFile) {
  const testing::TempDir dir;
  const std::string path = dir.Write("file", "former"), unfinished = dir.Write("file.unfinished", "x");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(chmod(unfinished.c_str(), 0644), 0);
  EXPECT_TRUE(ReplaceFile(path, "new", /*new_mode=*/0644).ok());
  EXPECT_EQ(ReadFile(path).value(), "new");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms{0600});
  EXPECT_FALSE(std::filesystem::exists(unfinished));
}

TEST(Sync, NamesAPathThatIsNotThere) {
  const testing::TempDir dir;
  EXPECT_TRUE(Sync(dir.path()).ok());
  EXPECT_TRUE(Sync(dir.Write("file", "x")).ok());
  EXPECT_THAT(Sync("/nowhere").ToString(), HasSubstr("cannot open /nowhere: No such file or directory"));
}

}  // namespace
}  // namespace foretoken::base
