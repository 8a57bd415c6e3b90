// SPDX-License-Identifier: Apache-2.0
// Written safetensors files. If this test fails, a quantised checkpoint cannot be read, or holds wrong weights.
#include "common/weights/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/weights/safetensors.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::weights {
namespace {

using ::testing::HasSubstr;

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const testing::TempDir dir;
  const std::vector<TensorHeader> headers = {{.name = "z", .dtype = "U8", .shape = {3}, .num_bytes = 3},
                                             {.name = "a", .dtype = "I16", .shape = {2, 1}, .num_bytes = 4},
                                             {.name = "none", .dtype = "F32", .shape = {0, 5}, .num_bytes = 0}};
  auto writer = SafetensorsWriter::Create(dir.path() + "/x.safetensors", headers);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<uint8_t> bytes = {1, 2, 3, 4, 5, 6, 7};
  ASSERT_TRUE(writer->Append(std::as_bytes(std::span(bytes)).first(2)).ok());
  ASSERT_TRUE(writer->Append(std::as_bytes(std::span(bytes)).subspan(2)).ok());
  ASSERT_TRUE(writer->Finish().ok());

  const auto file = SafetensorsFile::Open(dir.path() + "/x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors().size(), 3);
  const StoredTensor& z = file->tensors().at("z");
  const StoredTensor& a = file->tensors().at("a");
  EXPECT_EQ(z.dtype, "U8");
  EXPECT_EQ(std::to_integer<int>(z.bytes[2]), 3);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(std::to_integer<int>(a.bytes[0]), 4);
  EXPECT_TRUE(file->tensors().at("none").bytes.empty());
}

TEST(SafetensorsWriter, NamesAFileThatCannotBeWritten) {
  const auto writer = SafetensorsWriter::Create("/nowhere/x.safetensors", {});
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(writer.status().ToString(), HasSubstr("cannot create /nowhere/x.safetensors: No such file"));
}

TEST(SafetensorsWriter, NamesTheCauseWhereTheDiskIsFullAndLeavesNoFile) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  const testing::FileSizeLimit limit(5'000);
  const std::vector<TensorHeader> headers = {{.name = "a", .dtype = "U8", .shape = {10'000}, .num_bytes = 10'000}};
  {
    auto writer = SafetensorsWriter::Create(path, headers);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_THAT(writer->Append(std::vector<std::byte>(10'000)).ToString(),
                HasSubstr("cannot write " + path + ": File too large"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace foretoken::weights
