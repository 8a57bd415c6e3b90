// SPDX-License-Identifier: Apache-2.0
// Adds a BF16 tensor to the model.safetensors of a directory.
//
//   AppendTensor(dir.path(), "lm_head.weight", {301, 256}, bytes);
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/mapped_file.h"
#include "nlohmann/json.hpp"
#include "tests/testing/models/safetensors_writer.h"

namespace foretoken::testing {

inline void AppendTensor(const std::string& directory, const std::string& name, const std::vector<int64_t>& shape,
                         const std::string& bytes) {
  const std::string path = directory + "/model.safetensors";
  const std::string file = base::ReadFile(path).value();
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | static_cast<uint8_t>(file[i]);
  nlohmann::json header = nlohmann::json::parse(file.substr(8, header_bytes));
  const std::string data = file.substr(8 + header_bytes);
  header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
  std::ofstream(path, std::ios::binary) << SafetensorsBytes(header.dump(), 0) << data << bytes;
}

}  // namespace foretoken::testing
