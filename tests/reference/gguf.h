// SPDX-License-Identifier: Apache-2.0
// One value of a block of a GGUF type, straight from the type's definition. The only rounding is that of each operation
// in f32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace foretoken::reference {

struct GgufType {
  std::string name;
  uint32_t id = 0;  // in the file
  int64_t block_values = 0;
  int64_t block_bytes = 0;
};

// The types of blocks that are read.
const std::vector<GgufType>& GgufTypes();

// Value i of a block.
float GgufValue(const std::string& type, const uint8_t* block, int64_t i);

}  // namespace foretoken::reference
