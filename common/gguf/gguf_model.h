// SPDX-License-Identifier: Apache-2.0
// A model in GGUF: one file, or the parts of a split one (NAME-00001-of-00003.gguf), of which any may be named.
//
//   FT_ASSIGN_OR_RETURN(const GgufModel model, GgufModel::Open("llama.Q4_K_M.gguf"));
//   model.metadata()                          // of the first part
//   model.FindTensor("token_embd.weight")     // of any part
//
// Errors: as GgufFile; NOT_FOUND if a part is missing.
// Threads: immutable after Open.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/gguf_file.h"

namespace foretoken::gguf {

// Whether a path of a model names a GGUF file: any path that ends in .gguf and is not a directory, and any other
// regular file.
bool IsGgufPath(const std::string& path);

class GgufModel {
 public:
  static absl::StatusOr<GgufModel> Open(const std::string& path);

  const std::string& path() const { return files_.front().path(); }
  const Metadata& metadata() const { return files_.front().metadata(); }
  // Null: there is none.
  const GgufTensor* FindTensor(absl::string_view name) const;
  const std::vector<GgufFile>& files() const { return files_; }
  std::vector<GgufFile> TakeFiles() && { return std::move(files_); }

 private:
  explicit GgufModel(std::vector<GgufFile> files) : files_(std::move(files)) {}
  absl::Status CheckParts() const;

  std::vector<GgufFile> files_;  // at least one
};

}  // namespace foretoken::gguf
