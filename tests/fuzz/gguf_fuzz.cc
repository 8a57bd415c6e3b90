// SPDX-License-Identifier: Apache-2.0
// Reads the input as a GGUF file. The tensors of an accepted file lie inside the file, and what its header makes of a
// tokenizer is a JSON text.
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/gguf/gguf_file.h"
#include "common/gguf/tokenizer_json.h"
#include "kernels/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto content = foretoken::gguf::ReadGguf(file, "input");
  if (!content.ok()) {
    FT_CHECK(!content.status().message().empty());
    return 0;
  }
  for (const auto& [name, tensor] : content->tensors) {
    FT_CHECK(tensor.bytes.data() >= file.data());
    FT_CHECK(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
  }
  const auto tokenizer = foretoken::gguf::TokenizerJson(content->metadata);
  FT_CHECK(tokenizer.ok() ? !tokenizer->dump().empty() : !tokenizer.status().message().empty());
  return 0;
}
