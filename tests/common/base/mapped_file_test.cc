// SPDX-License-Identifier: Apache-2.0
// Mapped and read files. If this test fails, a server hangs or crashes on a wrong path, or does not tell its user that
// Git LFS files are missing.
#include "common/base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/testing/temp_dir.h"

namespace foretoken::base {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

void ExpectRefused(const std::string& path, absl::StatusCode code) {
  const absl::Status status = MappedFile::Open(path).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST(MappedFile, ShowsTheFilesBytes) {
  const TempDir dir;
  const absl::StatusOr<MappedFile> file = MappedFile::Open(dir.Write("a", "xyz"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->bytes().size(), 3);
  EXPECT_EQ(file->bytes()[2], std::byte{'z'});
}

TEST(MappedFile, IsEmptyForAnEmptyFile) {
  const TempDir dir;
  const absl::StatusOr<MappedFile> file = MappedFile::Open(dir.Write("a", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, MovesItsMapping) {
  const TempDir dir;
  MappedFile first = *MappedFile::Open(dir.Write("a", "first"));
  const std::byte* const data = first.bytes().data();
  MappedFile second = *MappedFile::Open(dir.Write("b", "second"));
  second = std::move(first);
  EXPECT_EQ(second.bytes().data(), data);
  EXPECT_EQ(second.path(), dir.path() + "/a");
}

TEST(MappedFile, RefusesAllButRegularFiles) {
  const TempDir dir;
  ExpectRefused(dir.path() + "/absent", absl::StatusCode::kNotFound);
  ExpectRefused(dir.path(), absl::StatusCode::kInvalidArgument);
  const std::string pipe = dir.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ExpectRefused(pipe, absl::StatusCode::kInvalidArgument);
}

TEST(MappedFile, RefusesAGitLfsPointerAndSaysHowToFetchTheFile) {
  const TempDir dir;
  const std::string path = dir.Write("model.safetensors",
                                     "version https://git-lfs.github.com/spec/v1\n"
                                     "oid sha256:d3ada7a68d14f3bb4c4a3d7f4a2b1a2c8f1e6e1d4b9f3b2a\nsize 2471645608\n");
  ExpectRefused(path, absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ReadFile(path).status().message()),
              HasSubstr("is a Git LFS pointer and not the file itself: run `git lfs pull`"));
}

TEST(ReadFile, ReadsTheWholeFile) {
  const TempDir dir;
  EXPECT_EQ(*ReadFile(dir.Write("a", std::string("x\0y", 3))), std::string("x\0y", 3));
}

// The cache of Hugging Face has links to files that may not have been downloaded. Optional files would count as absent.
TEST(ReadFile, ALinkToNothingIsNoAbsentFile) {
  const TempDir dir;
  EXPECT_EQ(ReadFile(dir.path() + "/a").status().code(), absl::StatusCode::kNotFound);
  std::filesystem::create_symlink("nothing", dir.path() + "/a");
  const absl::Status status = ReadFile(dir.path() + "/a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a is a link to a file that is not there"));
}

// To read a mapping of such a file would end the process.
TEST(ReadFile, AFileMayBeRewrittenMeanwhile) {
  const TempDir dir;
  const std::string contents(size_t{1} << 20, 'x'), path = dir.Write("a", contents);
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    while (!is_over) std::ofstream(path) << contents;  // cuts it first
  });
  for (int i = 0; i < 2000; ++i) {
    const absl::StatusOr<std::string> read = ReadFile(path);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(*read, contents.substr(0, read->size()));
  }
  is_over = true;
  writer.join();
}

TEST(ReadFile, RefusesAFileThatIsTooLarge) {
  const TempDir dir;
  const std::string path = dir.Write("a", "");
  std::filesystem::resize_file(path, kMaxReadBytes + 1);
  const absl::Status status = ReadFile(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected at most 67108864 bytes, got 67108865"));
}

}  // namespace
}  // namespace foretoken::base
