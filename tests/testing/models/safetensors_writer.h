// SPDX-License-Identifier: Apache-2.0
// Writes safetensors files for tests, valid or not. The header may be any text.
//
//   dir.Write("model.safetensors", SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace foretoken::testing {

// Returns the eight little-endian bytes of a header's length.
inline std::string LengthBytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  return bytes;
}

// Returns the header, padded with blanks to a multiple of 8 like in files of the format's own writer, and
// `num_data_bytes` bytes that count up.
inline std::string SafetensorsBytes(std::string_view header, size_t num_data_bytes) {
  std::string padded(header);
  while (padded.size() % 8 != 0) padded.push_back(' ');
  std::string bytes = LengthBytes(padded.size()) + padded;
  for (size_t i = 0; i < num_data_bytes; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

}  // namespace foretoken::testing
