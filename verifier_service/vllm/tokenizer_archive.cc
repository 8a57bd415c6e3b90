// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/vllm/tokenizer_archive.h"

#include <minizip/zip.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_model.h"
#include "common/gguf/model_files.h"
#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

// A file in memory, as the zip library writes it: it goes back to fill in sizes.
struct MemoryFile {
  std::string bytes;
  size_t position = 0;
};

uLong Write(voidpf, voidpf stream, const void* data, uLong size) {
  auto& file = *static_cast<MemoryFile*>(stream);
  file.bytes.resize(std::max(file.bytes.size(), file.position + size));
  std::copy_n(static_cast<const char*>(data), size, file.bytes.begin() + static_cast<ptrdiff_t>(file.position));
  file.position += size;
  return size;
}

uLong Read(voidpf, voidpf, void*, uLong) { return 0; }

ZPOS64_T Tell(voidpf, voidpf stream) { return static_cast<MemoryFile*>(stream)->position; }

long Seek(voidpf, voidpf stream, ZPOS64_T offset, int origin) {
  auto& file = *static_cast<MemoryFile*>(stream);
  const size_t base = origin == SEEK_SET ? 0 : origin == SEEK_CUR ? file.position : file.bytes.size();
  file.position = base + offset;
  return 0;
}

zlib_filefunc64_def InMemory(MemoryFile& file) {
  return {.zopen64_file = [](voidpf opaque, const void*, int) { return opaque; },
          .zread_file = Read,
          .zwrite_file = Write,
          .ztell64_file = Tell,
          .zseek64_file = Seek,
          .zclose_file = [](voidpf, voidpf) { return 0; },
          .zerror_file = [](voidpf, voidpf) { return 0; },
          .opaque = &file};
}

// False also for what cannot be looked at.
bool IsFile(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

absl::StatusOr<std::set<std::string>> FilesOf(const std::string& directory) {
  std::set<std::string> names = {"tokenizer.json"};
  if (gguf::IsGgufPath(directory)) {
    names.insert({"tokenizer_config.json", "config.json", "generation_config.json"});
    return names;
  }
  for (const char* name :
       {"tokenizer_config.json", "config.json", "generation_config.json", "special_tokens_map.json"}) {
    if (IsFile(absl::StrCat(directory, "/", name))) names.insert(name);
  }
  for (const std::string folder : {"", "additional_chat_templates/"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(absl::StrCat(directory, "/", folder), error)) {
      if (entry.path().extension() != ".jinja" || !IsFile(entry.path())) continue;
      names.insert(folder + entry.path().filename().string());
    }
    if (error && folder.empty()) return absl::NotFoundError(absl::StrCat(directory, ": ", error.message()));
  }
  return names;
}

// Appends a file. Only memory could make these calls fail.
void Append(const std::string& name, const std::string& contents, zipFile zip) {
  zip_fileinfo info = {};
  info.tmz_date = {.tm_mday = 1, .tm_year = 1980};  // the first day that the format knows
  FT_CHECK(zipOpenNewFileInZip(zip, name.c_str(), &info, nullptr, 0, nullptr, 0, nullptr, Z_DEFLATED, Z_BEST_SPEED) ==
           ZIP_OK);
  FT_CHECK(zipWriteInFileInZip(zip, contents.data(), static_cast<unsigned>(contents.size())) == ZIP_OK);
  FT_CHECK(zipCloseFileInZip(zip) == ZIP_OK);
}

}  // namespace

absl::StatusOr<TokenizerArchive> MakeTokenizerArchive(const std::string& directory) {
  FT_ASSIGN_OR_RETURN(const std::set<std::string> names, FilesOf(directory));
  MemoryFile file;
  zlib_filefunc64_def functions = InMemory(file);
  const zipFile zip = zipOpen2_64("", APPEND_STATUS_CREATE, nullptr, &functions);
  FT_CHECK(zip != nullptr);
  size_t num_bytes = 0;
  absl::Status status;
  for (const std::string& name : names) {
    const absl::StatusOr<std::string> contents = gguf::ReadModelFile(directory, name);
    status = contents.status();
    if (status.ok() && (num_bytes += contents->size()) > kMaxArchivedBytes) {
      status = absl::InvalidArgumentError(absl::StrCat(directory, ": expected at most ", kMaxArchivedBytes,
                                                       " bytes of files for the tokenizer, got more"));
    }
    if (!status.ok()) break;
    Append(name, *contents, zip);
  }
  FT_CHECK(zipClose(zip, nullptr) == ZIP_OK);
  FT_RETURN_IF_ERROR(status);
  base::Sha256 digest;
  digest.Update(file.bytes);
  return TokenizerArchive{.bytes = std::move(file.bytes), .sha256 = base::ToHex(digest.Finish())};
}

}  // namespace foretoken::verifier
