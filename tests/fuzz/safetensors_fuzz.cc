// SPDX-License-Identifier: Apache-2.0
// Reads the input as a safetensors file. The tensors of an accepted file fill its end, one behind the other. Then the
// file is the only one of a checkpoint, and each of its matrices is read in every quantised form that it may have.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/quantization/find_weight.h"
#include "common/weights/checkpoint.h"
#include "common/weights/safetensors.h"
#include "kernels/check.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::quantization {
namespace {

constexpr int64_t kMaxValues = 1 << 15;

// Tensors without bytes lie anywhere.
void CheckPlaces(std::span<const std::byte> file, const weights::StoredTensors& tensors) {
  std::map<const std::byte*, size_t> sizes;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.bytes.empty()) FT_CHECK(sizes.emplace(tensor.bytes.data(), tensor.bytes.size()).second);
  }
  if (sizes.empty()) return;
  const std::byte* end = sizes.begin()->first;
  FT_CHECK(end > file.data() + sizeof(uint64_t));  // a header
  for (const auto& [begin, size] : sizes) {
    FT_CHECK(begin == end);
    end += size;
  }
  FT_CHECK(end == file.data() + file.size());
}

void ReadMatrix(const weights::Checkpoint& checkpoint, const std::string& name, const kernels::Shape& shape,
                const QuantizationConfig& config) {
  const int64_t num_rows = shape[0], num_columns = shape[1];
  const absl::StatusOr<FoundWeight> found = FindWeight(checkpoint, name, shape, config);
  if (!found.ok()) {
    FT_CHECK(absl::IsInvalidArgument(found.status()) || absl::IsNotFound(found.status()));
    return;
  }
  if (found->stored == nullptr) return;
  std::vector<float> values(static_cast<size_t>(num_rows * num_columns));
  found->stored->ReadValues(0, num_rows, values.data());
  const std::optional<kernels::IntegerGroups> groups = found->stored->groups();
  if (!groups.has_value()) return;
  FT_CHECK(num_columns % groups->group_size == 0);
  std::vector<uint8_t> codes(values.size());
  std::vector<float> scales(values.size() / static_cast<size_t>(groups->group_size)), offsets(scales);
  found->stored->ReadGroups(0, num_rows, codes.data(), scales.data(), offsets.data());
  for (const uint8_t code : codes) FT_CHECK(code >> groups->bits == 0);
}

// The shapes that a matrix of the stored shape [a, b] may have: as it is, packed along its inputs, of GPTQ or of AWQ.
std::vector<kernels::Shape> ShapesOf(int64_t a, int64_t b) {
  std::vector<kernels::Shape> shapes;
  for (const int64_t packed : {1, 2, 4, 8}) {
    for (const auto& [rows, columns] : {std::pair(a, b * packed), {b, a * packed}, {b * packed, a}}) {
      if (rows * columns <= kMaxValues) shapes.emplace_back(rows, columns);
    }
  }
  return shapes;
}

void ReadMatrices(const weights::Checkpoint& checkpoint) {
  const QuantizationConfig configs[] = {
      {},
      {.is_declared = true,
       .bits = {4, 8},
       .group_sizes = {16, 32, 128},
       .block_sizes = {{.outputs = 16, .inputs = 32}, {.outputs = 128, .inputs = 128}}},
      {.is_gptq_v2 = true, .has_transposed_experts = true}};
  for (const std::string& stored : checkpoint.Names()) {
    const std::vector<int64_t>& shape = checkpoint.FindStored(stored)->shape;
    if (shape.size() < 2 || shape[0] <= 0 || shape[1] <= 0 || shape[0] > kMaxValues || shape[1] > kMaxValues) continue;
    for (const char* ending : {"weight", "weight_packed", "qweight"}) {
      absl::string_view layer = stored;
      if (!absl::ConsumeSuffix(&layer, ending)) continue;
      for (const kernels::Shape& asked : ShapesOf(shape[0], shape[1])) {
        for (const QuantizationConfig& config : configs) {
          ReadMatrix(checkpoint, absl::StrCat(layer, "weight"), asked, config);
        }
      }
    }
  }
}

}  // namespace
}  // namespace foretoken::quantization

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  static const testing::TempDir directory;
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto tensors = weights::ReadSafetensors(file, "input");
  if (!tensors.ok()) {
    FT_CHECK(!tensors.status().message().empty());
    return 0;
  }
  quantization::CheckPlaces(file, *tensors);
  directory.Write("model.safetensors", std::string(reinterpret_cast<const char*>(data), size));
  const absl::StatusOr<weights::Checkpoint> checkpoint = weights::Checkpoint::Open(directory.path());
  if (checkpoint.ok()) quantization::ReadMatrices(*checkpoint);
  return 0;
}
