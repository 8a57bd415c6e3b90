// SPDX-License-Identifier: Apache-2.0
// If these tests fail, a command loses the former result of its user, or cannot write where it could.
#include "client/commands/result_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "common/base/mapped_file.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::client {
namespace {

TEST(WriteResultFile, ReplacesAFile) {
  const testing::TempDir dir;
  const std::string file = dir.Write("result", "former");
  EXPECT_TRUE(WriteResultFile(file, "new").ok());
  EXPECT_EQ(base::ReadFile(file).value(), "new");
}

TEST(WriteResultFile, KeepsTheFormerFileOnAFullDisk) {
  const testing::TempDir dir;
  const std::string file = dir.Write("result", "former");
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {.rlim_cur = 100, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto former_handler = std::signal(SIGXFSZ, SIG_IGN);
  EXPECT_FALSE(WriteResultFile(file, std::string(200, 'x')).ok());
  std::signal(SIGXFSZ, former_handler);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(base::ReadFile(file).value(), "former");
}

// A conversation or a profile may be private.
TEST(WriteResultFile, KeepsTheModeOfAFile) {
  const testing::TempDir dir;
  const std::string file = dir.Write("result", "former"), other = dir.path() + "/other";
  const mode_t former_umask = umask(022);
  for (const mode_t mode : {0600, 0640, 0666}) {
    ASSERT_EQ(chmod(file.c_str(), mode), 0);
    EXPECT_TRUE(WriteResultFile(file, "new").ok());
    EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms{mode});
  }
  EXPECT_TRUE(WriteResultFile(other, "new").ok());
  umask(former_umask);
  EXPECT_EQ(std::filesystem::status(other).permissions(), std::filesystem::perms{0644});
}

TEST(WriteResultFile, WritesThroughALink) {
  const testing::TempDir dir;
  const std::string file = dir.Write("result", "former"), link = dir.path() + "/link";
  std::filesystem::create_symlink(file, link);
  EXPECT_TRUE(WriteResultFile(link, "new").ok());
  EXPECT_EQ(base::ReadFile(file).value(), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST(WriteResultFile, LeavesADeviceWhatItIs) {
  EXPECT_TRUE(WriteResultFile("/dev/null", "new").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_FALSE(WriteResultFile("/dev/full", "new").ok());
}

TEST(WriteResultFile, WritesAFileWhoseFolderTakesNoOther) {
  const testing::TempDir dir;
  const std::string file = dir.Write("result", "former");
  ASSERT_EQ(chmod(dir.path().c_str(), 0555), 0);
  EXPECT_TRUE(WriteResultFile(file, "new").ok());
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  EXPECT_EQ(base::ReadFile(file).value(), "new");
}

}  // namespace
}  // namespace foretoken::client
