// SPDX-License-Identifier: Apache-2.0
#include "client/offline/output_folder.h"

#include <fstream>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/write_file.h"

namespace foretoken::client {
namespace {

namespace fs = std::filesystem;

absl::Status FolderError(const std::error_code& error, absl::string_view what, const fs::path& path) {
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot ", what, " ", path.string()));
}

}  // namespace

absl::StatusOr<OutputFolder> OutputFolder::Make(const std::string& path) {
  OutputFolder folder(path);
  std::error_code error;
  if (fs::create_directories(path, error)) folder.made_.push_back(path);
  if (error) return FolderError(error, "create", path);
  const bool is_empty = fs::is_empty(path, error);
  if (error) return FolderError(error, "list", path);
  if (!is_empty) return absl::InvalidArgumentError(absl::StrCat(path, ": expected a new or an empty directory"));
  return folder;
}

OutputFolder::~OutputFolder() {
  for (; !made_.empty(); made_.pop_back()) {
    std::error_code ignored;
    fs::remove(made_.back(), ignored);
  }
}

std::string OutputFolder::Add(const std::string& name) { return made_.emplace_back(path_ / name).string(); }

absl::StatusOr<base::OutputFile> OutputFolder::Create(const std::string& name) {
  const fs::path folder = (path_ / name).parent_path();
  std::error_code error;
  if (fs::create_directory(folder, error)) made_.push_back(folder);
  if (error) return FolderError(error, "create", folder);
  return base::OutputFile::Create(Add(name));
}

absl::Status OutputFolder::Write(const std::string& name, absl::string_view bytes) {
  FT_ASSIGN_OR_RETURN(base::OutputFile file, Create(name));
  FT_RETURN_IF_ERROR(file.Append(bytes));
  return file.Finish();
}

absl::Status OutputFolder::Copy(const std::string& name, const std::string& from) {
  FT_ASSIGN_OR_RETURN(base::OutputFile file, Create(name));
  std::ifstream source(from, std::ios::binary);
  std::string piece(size_t{1} << 20, '\0');
  while (source) {
    source.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    FT_RETURN_IF_ERROR(file.Append({piece.data(), static_cast<size_t>(source.gcount())}));
  }
  if (!source.eof()) return absl::UnavailableError(absl::StrCat("cannot read ", from, " to its end"));
  return file.Finish();
}

absl::Status OutputFolder::Finish(const std::string& last_name, absl::string_view bytes) {
  std::set<std::string> folders = {path_.string()};
  for (const fs::path& made : made_) {
    if (made != path_) folders.insert(made.parent_path().string());
  }
  for (const std::string& folder : folders) FT_RETURN_IF_ERROR(base::Sync(folder));
  FT_RETURN_IF_ERROR(base::WriteFile(Add(last_name), bytes, /*mode=*/0644));
  made_.clear();
  return absl::OkStatus();
}

}  // namespace foretoken::client
