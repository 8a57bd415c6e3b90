// SPDX-License-Identifier: Apache-2.0
// Paths of committed test data. SourcePath("tests/cases/x.json") is absolute. If the sources of the build are not on
// this machine, the path is in the checkout in which the program runs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace foretoken::testing {

inline std::string SourcePath(std::string_view relative) {
  static const std::string root = std::filesystem::exists(FORETOKEN_SOURCE_DIR) ? FORETOKEN_SOURCE_DIR : ".";
  return root + "/" + std::string(relative);
}

}  // namespace foretoken::testing
