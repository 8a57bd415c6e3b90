// SPDX-License-Identifier: Apache-2.0
// Writes the GGUF file of a model in a Hugging Face directory, as converters do.
//
//   dir.Write("twin.gguf", GgufTwin("tests/cases/models/llama").Bytes());
//
// Of every family that is read. Some architectures' q and k are interleaved, and all experts of a layer become one
// tensor. Vectors become F32. The tokenizer is the directory's, or one that is given.
#pragma once

#include <string>

#include "tests/testing/models/gguf_keys.h"
#include "tests/testing/models/gguf_matrix.h"
#include "tests/testing/models/gguf_writer.h"

namespace foretoken::testing {

struct GgufTwinOptions {
  MatrixEncoder encode = InF32;
  std::string tokenizer_directory;  // empty: the model's; without a tokenizer.json there, one of plain ids
  std::string pre = "qwen2";
  bool fuses_experts = false;  // gate and up of all experts as one tensor
};

// The keys and tensors of the model.
GgufWriter GgufTwin(const std::string& directory, const GgufTwinOptions& options = {});

}  // namespace foretoken::testing
