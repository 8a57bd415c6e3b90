// SPDX-License-Identifier: Apache-2.0
// A new directory. The destructor removes it with its content.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "kernels/check.h"

namespace foretoken::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "foretoken_test_XXXXXX").string();
    FT_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

  // Writes a file into the directory and returns its path.
  std::string Write(std::string_view name, std::string_view content) const {
    std::string path = path_ + "/" + std::string(name);
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  void CopyFrom(const std::string& directory) const {
    std::filesystem::copy(directory, path_, std::filesystem::copy_options::recursive);
  }

 private:
  std::string path_;
};

}  // namespace foretoken::testing
