// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/model_files.h"

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/gguf/config_json.h"
#include "common/gguf/gguf_model.h"
#include "common/gguf/tokenizer_json.h"

namespace foretoken::gguf {
namespace {

// A GGUF file in a directory that is no checkpoint, for a message: "; it holds llama.gguf, which is named by its own
// path".
std::string DescribeGgufFile(const std::string& directory) {
  std::string first;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (IsGgufPath(entry->path().string()) && name.ends_with(".gguf") && (first.empty() || name < first)) first = name;
  }
  if (first.empty()) return "";
  return absl::StrCat("; the directory holds ", absl::Utf8SafeCHexEscape(first),
                      ", and a GGUF file is named by its own path");
}

}  // namespace

absl::StatusOr<nlohmann::json> ReadModelJson(const std::string& model, absl::string_view name) {
  if (!IsGgufPath(model)) return base::ReadJson(ModelFileName(model, name));
  FT_ASSIGN_OR_RETURN(const GgufModel gguf, GgufModel::Open(model));
  if (name == "config.json") return ConfigJson(gguf);
  if (name == "generation_config.json") return GenerationConfigJson(gguf);
  if (name == "tokenizer.json") return TokenizerJson(gguf.metadata());
  if (name == "tokenizer_config.json") return TokenizerConfigJson(gguf.metadata());
  return absl::NotFoundError(absl::StrCat(model, ": a GGUF file has no ", name));
}

absl::StatusOr<std::string> ReadModelFile(const std::string& model, absl::string_view name) {
  if (!IsGgufPath(model)) {
    absl::StatusOr<std::string> text = base::ReadFile(ModelFileName(model, name));
    if (!absl::IsNotFound(text.status())) return text;
    return absl::NotFoundError(absl::StrCat(text.status().message(), DescribeGgufFile(model)));
  }
  FT_ASSIGN_OR_RETURN(const nlohmann::json json, ReadModelJson(model, name));
  return json.dump();
}

std::string ModelFileName(const std::string& model, absl::string_view name) {
  return absl::StrCat(model, IsGgufPath(model) ? " as " : "/", name);
}

}  // namespace foretoken::gguf
