// SPDX-License-Identifier: Apache-2.0
// Where committed test data lies: SourcePath("tests/cases/x.json") is absolute wherever the test runs. Of a program
// that was carried to a machine without the sources it was built from, it is in the checkout that it runs in.
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
