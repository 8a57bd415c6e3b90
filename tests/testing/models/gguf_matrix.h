// SPDX-License-Identifier: Apache-2.0
// Matrices in GGUF's types, for files that tests write.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/reference/gguf.h"

namespace foretoken::testing {

// A matrix in some type: the bytes of rows of values.
struct EncodedMatrix {
  uint32_t type = 0;
  std::string bytes;
};
using MatrixEncoder = std::function<EncodedMatrix(const std::string& name, const std::vector<float>& values)>;

EncodedMatrix InF32(const std::string& name, const std::vector<float>& values);
EncodedMatrix InF16(const std::string& name, const std::vector<float>& values);
EncodedMatrix InBf16(const std::string& name, const std::vector<float>& values);

// Random blocks, the same for each name, with small scales.
EncodedMatrix InRandomBlocks(const reference::GgufType& type, const std::string& name, size_t num_values);

// Random blocks of the types that llama.cpp's Q4_K_M mixes: v, down and the embedding in Q6_K, all else in Q4_K.
EncodedMatrix InTypesOfQ4KM(const std::string& name, const std::vector<float>& values);

}  // namespace foretoken::testing
