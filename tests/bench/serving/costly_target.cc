// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/costly_target.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/weights/safetensors.h"
#include "common/weights/safetensors_writer.h"
#include "nlohmann/json.hpp"

namespace foretoken::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// In practice an intermediate_size is a multiple of this.
constexpr int64_t kWidthUnit = 64;

enum class Role { kOther, kRows, kColumns };  // the dimension of a tensor that grows with the intermediate size

Role RoleOf(absl::string_view name) {
  if (absl::EndsWith(name, "mlp.gate_proj.weight") || absl::EndsWith(name, "mlp.up_proj.weight")) return Role::kRows;
  return absl::EndsWith(name, "mlp.down_proj.weight") ? Role::kColumns : Role::kOther;
}

struct NamedTensor {
  std::string name;
  weights::StoredTensor stored;
  Role role = Role::kOther;
};

// [rows, columns] of random bf16 of either sign and magnitude 1/64 to 1/32. The values are large enough to matter, and
// no sum over a normalised row comes near infinity.
void AppendRandom(int64_t count, uint64_t* state, std::vector<uint16_t>* out) {
  constexpr uint16_t kSignAndMantissa = 0x807f;
  constexpr uint16_t kExponent = 121 << 7;
  for (int64_t i = 0; i < count; i += 4) {  // SplitMix64
    uint64_t bits = (*state += 0x9e3779b97f4a7c15u);
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    for (int64_t lane = 0; lane < std::min<int64_t>(4, count - i); ++lane) {
      out->push_back(static_cast<uint16_t>(((bits >> (16 * lane)) & kSignAndMantissa) | kExponent));
    }
  }
}

std::vector<uint16_t> Widened(const NamedTensor& tensor, int64_t width, uint64_t* state) {
  const int64_t num_rows = tensor.stored.shape[0], num_columns = tensor.stored.shape[1];
  const std::span old(reinterpret_cast<const uint16_t*>(tensor.stored.bytes.data()), num_rows * num_columns);
  std::vector<uint16_t> wide;
  if (tensor.role == Role::kRows) {
    wide.reserve(static_cast<size_t>(width * num_columns));
    wide.assign(old.begin(), old.end());
    AppendRandom((width - num_rows) * num_columns, state, &wide);
    return wide;
  }
  wide.resize(static_cast<size_t>(num_rows * width));  // zeros
  for (int64_t row = 0; row < num_rows; ++row) {
    std::copy_n(old.begin() + row * num_columns, num_columns, wide.begin() + row * width);
  }
  return wide;
}

std::vector<int64_t> WidenedShape(const NamedTensor& tensor, int64_t width) {
  std::vector<int64_t> shape = tensor.stored.shape;
  if (tensor.role != Role::kOther) shape[tensor.role == Role::kRows ? 0 : 1] = width;
  return shape;
}

absl::Status WriteWeights(std::span<const NamedTensor> tensors, int64_t width, const std::string& path) {
  std::vector<weights::TensorHeader> headers;
  for (const NamedTensor& tensor : tensors) {
    const std::vector<int64_t> shape = WidenedShape(tensor, width);
    size_t num_bytes = tensor.stored.bytes.size();
    if (tensor.role != Role::kOther) num_bytes = sizeof(uint16_t) * static_cast<size_t>(shape[0] * shape[1]);
    headers.push_back({.name = tensor.name, .dtype = tensor.stored.dtype, .shape = shape, .num_bytes = num_bytes});
  }
  FT_ASSIGN_OR_RETURN(weights::SafetensorsWriter file, weights::SafetensorsWriter::Create(path, headers));
  uint64_t state = 1;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.role == Role::kOther) {
      FT_RETURN_IF_ERROR(file.Append(tensor.stored.bytes));
    } else {
      const std::vector<uint16_t> wide = Widened(tensor, width, &state);
      FT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(wide))));
    }
  }
  return file.Finish();
}

absl::StatusOr<std::vector<NamedTensor>> TensorsOf(const weights::SafetensorsFile& file) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, stored] : file.tensors()) {
    tensors.push_back({.name = name, .stored = stored, .role = RoleOf(name)});
    if (tensors.back().role == Role::kOther) continue;
    if (stored.dtype != "BF16" || stored.shape.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", name, ": expected a BF16 matrix"));
    }
  }
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  return tensors;
}

// The intermediate size with which all tensors together have this many bytes.
absl::StatusOr<int64_t> WidthFor(std::span<const NamedTensor> tensors, int64_t num_bytes) {
  int64_t num_fixed_bytes = 0, num_bytes_per_unit = 0, width = 0;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.role == Role::kOther) {
      num_fixed_bytes += static_cast<int64_t>(tensor.stored.bytes.size());
      continue;
    }
    const auto& shape = tensor.stored.shape;
    width = tensor.role == Role::kRows ? shape[0] : shape[1];
    num_bytes_per_unit += int64_t{sizeof(uint16_t)} * (tensor.role == Role::kRows ? shape[1] : shape[0]);
  }
  if (num_bytes_per_unit == 0) return absl::InvalidArgumentError("no mlp.gate_proj, up_proj or down_proj to widen");
  const int64_t wanted = (num_bytes - num_fixed_bytes + num_bytes_per_unit - 1) / num_bytes_per_unit;
  return std::max(width, (wanted + kWidthUnit - 1) / kWidthUnit * kWidthUnit);
}

}  // namespace

absl::Status WriteCostlyTarget(const CostlyTarget& target) {
  FT_ASSIGN_OR_RETURN(const weights::SafetensorsFile file,
                      weights::SafetensorsFile::Open(target.source + "/model.safetensors"));
  FT_ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, TensorsOf(file));
  FT_ASSIGN_OR_RETURN(const int64_t width, WidthFor(tensors, target.num_bytes));
  FT_ASSIGN_OR_RETURN(const std::string config_text, base::ReadFile(target.source + "/config.json"));
  json config = json::parse(config_text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError(absl::StrCat(target.source, "/config.json: not JSON"));
  config["intermediate_size"] = width;
  for (const fs::directory_entry& entry : fs::directory_iterator(target.source)) {
    const fs::path name = entry.path().filename();
    if (name != "model.safetensors")
      fs::copy_file(entry, fs::path(target.directory) / name, fs::copy_options::overwrite_existing);
  }
  std::ofstream(target.directory + "/config.json", std::ios::trunc) << config.dump(2);
  return WriteWeights(tensors, width, target.directory + "/model.safetensors");
}

}  // namespace foretoken::bench
