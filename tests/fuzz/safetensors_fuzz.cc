// SPDX-License-Identifier: Apache-2.0
// Reads the input as a safetensors file. The tensors of an accepted file lie inside the file, one behind the other.
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/weights/safetensors.h"
#include "kernels/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto tensors = foretoken::weights::ReadSafetensors(file, "input");
  if (!tensors.ok()) {
    FT_CHECK(!tensors.status().message().empty());
    return 0;
  }
  size_t num_bytes = 0;
  for (const auto& [name, tensor] : *tensors) {
    FT_CHECK(tensor.bytes.data() >= file.data());
    FT_CHECK(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
    num_bytes += tensor.bytes.size();
  }
  FT_CHECK(num_bytes < size);  // the header has at least its length
  return 0;
}
