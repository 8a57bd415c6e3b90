// SPDX-License-Identifier: Apache-2.0
// Writes the GGUF file of a model in a Hugging Face directory, as converters do.
//
//   dir.Write("twin.gguf", GgufTwin("tests/cases/models/llama").Bytes());
//
// Of every family that is read. Some architectures' q and k are interleaved, and all experts of a layer become one
// tensor. Vectors become F32. The tokenizer is the directory's, or one that is given.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/reference/gguf.h"
#include "tests/testing/models/gguf_writer.h"

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

struct GgufTwinOptions {
  MatrixEncoder encode = InF32;
  std::string tokenizer_directory;  // empty: the model's; without a tokenizer.json there, one of plain ids
  std::string pre = "qwen2";
  bool fuses_experts = false;  // gate and up of all experts as one tensor
};

// The keys and tensors of the model.
GgufWriter GgufTwin(const std::string& directory, const GgufTwinOptions& options = {});

// The keys of a model with this config.json, and an embedding of zeros as its only tensor.
GgufWriter GgufKeys(const nlohmann::json& config);

// Adds a tokenizer.json's tokenizer. Tokens of SentencePiece get a score by the merge that makes them, and `merges` are
// left out.
void AddTokenizer(const nlohmann::json& tokenizer, const std::string& pre, GgufWriter& writer);

}  // namespace foretoken::testing
