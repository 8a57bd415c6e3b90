// SPDX-License-Identifier: Apache-2.0
// A folder that a command fills. If the command fails, the folder and its files are removed, so that it can run again.
//
//   FT_ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Make("models/llama-w4"));
//   FT_ASSIGN_OR_RETURN(auto weights, SafetensorsWriter::Create(folder.Add("model.safetensors"), tensors));
//   ... write the weights ...
//   FT_RETURN_IF_ERROR(folder.Copy("tokenizer.json", "models/llama/tokenizer.json"));
//   FT_RETURN_IF_ERROR(folder.Finish("config.json", text));
//
// Errors: INVALID_ARGUMENT for a folder that is not empty; the system's, with the path. Threads: one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/output_file.h"

namespace foretoken::client {

class OutputFolder {
 public:
  // The folder is new, or empty.
  static absl::StatusOr<OutputFolder> Make(const std::string& path);
  OutputFolder(OutputFolder&&) = default;
  ~OutputFolder();

  // The path of a file that the caller is about to write itself.
  std::string Add(const std::string& name);
  // Writes a file. Its name may begin with a folder.
  absl::Status Write(const std::string& name, absl::string_view bytes);
  // Copies a file of any size.
  absl::Status Copy(const std::string& name, const std::string& from);
  // Brings the folder to the disk, where its files are already, and only then writes the last one: nothing opens the
  // folder without it. From here on the files stay.
  absl::Status Finish(const std::string& last_name, absl::string_view bytes);

 private:
  absl::StatusOr<base::OutputFile> Create(const std::string& name);
  explicit OutputFolder(const std::string& path) : path_(path) {}

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // files and folders, in the order in which they were made
};

}  // namespace foretoken::client
