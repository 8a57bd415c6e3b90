// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/gguf_model.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace foretoken::gguf {
namespace {

constexpr absl::string_view kEnding = ".gguf";
constexpr absl::string_view kSplitForm = "-00001-of-00002.gguf";  // its length is that of every split name's end
constexpr size_t kNumberBytes = 5;

// The beginning of the names of all parts, and their number.
struct SplitName {
  std::string begin;
  int num_parts = 0;
};

bool IsNumber(absl::string_view text, int& number) {
  return std::ranges::all_of(text, absl::ascii_isdigit) && absl::SimpleAtoi(text, &number);
}

// Unset: the name is not that of a part.
std::optional<SplitName> ParseSplitName(absl::string_view path) {
  if (path.size() <= kSplitForm.size()) return std::nullopt;
  const absl::string_view begin = path.substr(0, path.size() - kSplitForm.size());
  absl::string_view end = path.substr(begin.size());
  int part = 0, num_parts = 0;
  const bool is_split = absl::ConsumePrefix(&end, "-") && IsNumber(end.substr(0, kNumberBytes), part) &&
                        absl::StartsWith(end.substr(kNumberBytes), "-of-") &&
                        IsNumber(end.substr(kNumberBytes + 4, kNumberBytes), num_parts) && absl::EndsWith(end, kEnding);
  if (!is_split || part < 1 || part > num_parts) return std::nullopt;
  return SplitName{.begin = std::string(begin), .num_parts = num_parts};
}

}  // namespace

bool IsGgufPath(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) return false;
  return absl::EndsWith(path, kEnding) || std::filesystem::is_regular_file(status);
}

absl::StatusOr<GgufModel> GgufModel::Open(const std::string& path) {
  std::vector<GgufFile> files;
  FT_ASSIGN_OR_RETURN(GgufFile named, GgufFile::Open(path));
  constexpr const char* kCount = "split.count";
  FT_ASSIGN_OR_RETURN(const int64_t num_parts, named.metadata().OrDefault<int64_t>(kCount, 1));
  if (num_parts <= 1) {
    files.push_back(std::move(named));
    return GgufModel(std::move(files));
  }
  const std::optional<SplitName> name = ParseSplitName(path);
  if (!name || name->num_parts != num_parts) {
    return named.metadata().Error(kCount, "expected a file named NAME", absl::StrFormat("-00001-of-%05d", num_parts),
                                  kEnding, " or another part of it");
  }
  for (int part = 1; part <= name->num_parts; ++part) {
    FT_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(absl::StrFormat("%s-%05d-of-%05d%s", name->begin, part,
                                                                      name->num_parts, kEnding)));
    files.push_back(std::move(file));
  }
  GgufModel model(std::move(files));
  FT_RETURN_IF_ERROR(model.CheckParts());
  return model;
}

absl::Status GgufModel::CheckParts() const {
  const auto num_parts = static_cast<int64_t>(files_.size());
  absl::flat_hash_set<absl::string_view> names;
  for (int64_t part = 0; part < num_parts; ++part) {
    const GgufFile& file = files_[part];
    const Metadata& metadata = file.metadata();
    for (const auto& [key, expected] : {std::pair("split.no", part), {"split.count", num_parts}}) {
      FT_ASSIGN_OR_RETURN(const int64_t got, metadata.Required<int64_t>(key));
      if (got != expected) return metadata.Error(key, "expected ", expected, " by the file's name, got ", got);
    }
    for (const auto& [name, tensor] : file.tensors()) {
      if (!names.insert(name).second) {
        return metadata.Error(absl::Utf8SafeCHexEscape(name), "another part of the model has this tensor, too");
      }
    }
  }
  constexpr const char* kTotal = "split.tensors.count";
  FT_ASSIGN_OR_RETURN(const auto total, metadata().Optional<int64_t>(kTotal));
  if (total && *total != static_cast<int64_t>(names.size())) {
    return metadata().Error(kTotal, "expected ", names.size(), ", the number of tensors in all parts, got ", *total);
  }
  return absl::OkStatus();
}

const GgufTensor* GgufModel::FindTensor(absl::string_view name) const {
  for (const GgufFile& file : files_) {
    if (const auto found = file.tensors().find(name); found != file.tensors().end()) return &found->second;
  }
  return nullptr;
}

}  // namespace foretoken::gguf
