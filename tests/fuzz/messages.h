// SPDX-License-Identifier: Apache-2.0
// Cuts a fuzz target's input into the messages of a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace foretoken::testing {

// Between two messages. A fuzzer copies and moves it more easily than it keeps lengths right.
inline constexpr absl::string_view kMessageEnd = "\n--\n";

inline std::vector<absl::string_view> SplitMessages(const uint8_t* data, size_t size) {
  return absl::StrSplit(absl::string_view(reinterpret_cast<const char*>(data), size), kMessageEnd);
}

}  // namespace foretoken::testing
