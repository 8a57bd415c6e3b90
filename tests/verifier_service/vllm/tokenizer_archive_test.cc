// SPDX-License-Identifier: Apache-2.0
// The archive of a tokenizer's files. If this test fails, a gateway makes other tokens than the server, or none.
#include "verifier_service/vllm/tokenizer_archive.h"

#include <minizip/unzip.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/sha256.h"
#include "common/tokenizer/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/models/gguf_twin.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

void Write(const std::string& path, const std::string& contents) { std::ofstream(path) << contents; }

std::map<std::string, std::string> Unzip(const TokenizerArchive& archive) {
  const testing::TempDir directory;
  const std::string path = directory.path() + "/archive.zip";
  Write(path, archive.bytes);
  std::map<std::string, std::string> files;
  const unzFile zip = unzOpen(path.c_str());
  EXPECT_NE(zip, nullptr);
  for (int found = unzGoToFirstFile(zip); found == UNZ_OK; found = unzGoToNextFile(zip)) {
    char name[256];
    unz_file_info info;
    EXPECT_EQ(unzGetCurrentFileInfo(zip, &info, name, sizeof name, nullptr, 0, nullptr, 0), UNZ_OK);
    std::string contents(info.uncompressed_size, '\0');
    EXPECT_EQ(unzOpenCurrentFile(zip), UNZ_OK);
    EXPECT_EQ(unzReadCurrentFile(zip, contents.data(), static_cast<unsigned>(contents.size())), contents.size());
    EXPECT_EQ(unzCloseCurrentFile(zip), UNZ_OK) << "the checksum is wrong";
    files[name] = contents;
  }
  unzClose(zip);
  return files;
}

TEST(TokenizerArchive, HasTheFilesThatMakeTokensAndNothingElse) {
  const testing::TempDir directory;
  Write(directory.path() + "/tokenizer.json", "{\"a\": 1}");
  Write(directory.path() + "/config.json", "");
  Write(directory.path() + "/chat_template.jinja", std::string(100'000, 'x'));
  std::filesystem::create_directory(directory.path() + "/additional_chat_templates");
  Write(directory.path() + "/additional_chat_templates/tool_use.jinja", "tools");
  Write(directory.path() + "/additional_chat_templates/notes.txt", "");
  Write(directory.path() + "/model.safetensors", "weights");
  Write(directory.path() + "/secret.json", "{}");
  const auto archive = MakeTokenizerArchive(directory.path());
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_THAT(Unzip(*archive), ElementsAre(Pair("additional_chat_templates/tool_use.jinja", "tools"),
                                           Pair("chat_template.jinja", std::string(100'000, 'x')),
                                           Pair("config.json", ""), Pair("tokenizer.json", "{\"a\": 1}")));
  EXPECT_LT(archive->bytes.size(), 10'000) << "it is compressed";
  base::Sha256 digest;
  digest.Update(archive->bytes);
  EXPECT_EQ(archive->sha256, base::ToHex(digest.Finish()));
}

TEST(TokenizerArchive, OfTheDemoModelHasItsTokenizerAndIsTheSameEachTime) {
  const std::string model = testing::SourcePath("deploy/demo/target");
  const auto archive = MakeTokenizerArchive(model);
  ASSERT_TRUE(archive.ok()) << archive.status();
  const auto files = Unzip(*archive);
  EXPECT_EQ(files.at("tokenizer.json"), base::ReadFile(model + "/tokenizer.json").value());
  EXPECT_TRUE(files.contains("tokenizer_config.json"));
  EXPECT_FALSE(files.contains("model.safetensors"));
  EXPECT_EQ(MakeTokenizerArchive(model)->sha256, archive->sha256);
}

TEST(TokenizerArchive, OfAGgufFileHasTheFilesThatItsHeaderMakes) {
  const testing::TempDir directory;
  const std::string model = testing::SourcePath("deploy/demo/target");
  const auto archive = MakeTokenizerArchive(directory.Write("x.gguf", testing::GgufTwin(model).Bytes()));
  ASSERT_TRUE(archive.ok()) << archive.status();
  const auto files = Unzip(*archive);
  EXPECT_EQ(files.size(), 4);
  for (const auto& [name, text] : files) directory.Write(name, text);
  const auto tokenizer = tokenizer::Tokenizer::Load(directory.path()), expected = tokenizer::Tokenizer::Load(model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer::VocabularyFingerprint(tokenizer->vocabulary()),
            tokenizer::VocabularyFingerprint(expected->vocabulary()));
}

TEST(TokenizerArchive, NeedsATokenizer) {
  const testing::TempDir directory;
  const absl::Status status = MakeTokenizerArchive(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.json"));
  EXPECT_FALSE(MakeTokenizerArchive(directory.path() + "/absent").ok());
}

TEST(TokenizerArchive, PassesOverWhatIsNoFile) {
  const testing::TempDir directory;
  Write(directory.path() + "/tokenizer.json", "{}");
  std::filesystem::create_directory(directory.path() + "/old.jinja");
  std::filesystem::create_symlink("config.json", directory.path() + "/config.json");  // a link to itself
  const auto archive = MakeTokenizerArchive(directory.path());
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_THAT(Unzip(*archive), ElementsAre(Pair("tokenizer.json", "{}")));
}

TEST(TokenizerArchive, IsBounded) {
  const testing::TempDir directory;
  Write(directory.path() + "/tokenizer.json", "{}");
  for (const char* name : {"a.jinja", "b.jinja", "c.jinja"}) {
    Write(absl::StrCat(directory.path(), "/", name), "");
    std::filesystem::resize_file(absl::StrCat(directory.path(), "/", name), kMaxArchivedBytes / 2);  // a hole, no disk
  }
  const absl::Status status = MakeTokenizerArchive(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected at most 134217728 bytes"));
}

}  // namespace
}  // namespace foretoken::verifier
