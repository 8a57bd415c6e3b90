// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/costly_target.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

constexpr int kChosenExperts = 8;

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

// A tensor of experts or of a router: random, or zeros.
struct NewTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool is_zero = false;

  int64_t num_elements() const { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); }
};

// What each layer has besides.
std::vector<NewTensor> ExpertTensors(const CostlyTarget& target, int64_t num_layers, int64_t hidden, int64_t width) {
  std::vector<NewTensor> tensors;
  for (int64_t layer = 0; target.num_experts > 0 && layer < num_layers; ++layer) {
    const std::string mlp = absl::StrCat("model.layers.", layer, ".mlp.");
    tensors.push_back({.name = mlp + "gate.weight", .shape = {target.num_experts, hidden}});
    tensors.push_back({.name = mlp + "gate.e_score_correction_bias", .shape = {target.num_experts}, .is_zero = true});
    for (int expert = 0; expert < target.num_experts; ++expert) {
      const std::string prefix = absl::StrCat(mlp, "experts.", expert, ".");
      tensors.push_back({.name = prefix + "gate_proj.weight", .shape = {width, hidden}});
      tensors.push_back({.name = prefix + "up_proj.weight", .shape = {width, hidden}});
      tensors.push_back({.name = prefix + "down_proj.weight", .shape = {hidden, width}, .is_zero = true});
    }
  }
  return tensors;
}

absl::Status WriteWeights(std::span<const NamedTensor> tensors, std::span<const NewTensor> new_tensors, int64_t width,
                          const std::string& path) {
  std::vector<weights::TensorHeader> headers;
  for (const NamedTensor& tensor : tensors) {
    const std::vector<int64_t> shape = WidenedShape(tensor, width);
    size_t num_bytes = tensor.stored.bytes.size();
    if (tensor.role != Role::kOther) num_bytes = sizeof(uint16_t) * static_cast<size_t>(shape[0] * shape[1]);
    std::string name = tensor.name;
    if (tensor.role != Role::kOther && !new_tensors.empty()) {
      name = absl::StrReplaceAll(name, {{".mlp.", ".mlp.shared_experts."}});
    }
    headers.push_back({.name = name, .dtype = tensor.stored.dtype, .shape = shape, .num_bytes = num_bytes});
  }
  for (const NewTensor& tensor : new_tensors) {
    headers.push_back({.name = tensor.name,
                       .dtype = "BF16",
                       .shape = tensor.shape,
                       .num_bytes = sizeof(uint16_t) * static_cast<size_t>(tensor.num_elements())});
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
  for (const NewTensor& tensor : new_tensors) {
    std::vector<uint16_t> values;
    if (tensor.is_zero) {
      values.resize(static_cast<size_t>(tensor.num_elements()));
    } else {
      AppendRandom(tensor.num_elements(), &state, &values);
    }
    FT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(values))));
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

// The intermediate size with which all tensors together have this many bytes, if there are `num_mlps` of each MLP.
absl::StatusOr<int64_t> WidthFor(std::span<const NamedTensor> tensors, int64_t num_bytes, int num_mlps) {
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
  num_bytes_per_unit *= num_mlps;
  if (num_bytes_per_unit == 0) return absl::InvalidArgumentError("no mlp.gate_proj, up_proj or down_proj to widen");
  const int64_t wanted = (num_bytes - num_fixed_bytes + num_bytes_per_unit - 1) / num_bytes_per_unit;
  return std::max(width, (wanted + kWidthUnit - 1) / kWidthUnit * kWidthUnit);
}

// The fields of GLM-4.5 that say the same function, with experts that add nothing.
void AddExperts(const CostlyTarget& target, int64_t width, json& config) {
  config["architectures"] = {"Glm4MoeForCausalLM"};
  config["model_type"] = "glm4_moe";
  config["partial_rotary_factor"] = 1.0;
  config["n_routed_experts"] = target.num_experts;
  config["num_experts_per_tok"] = kChosenExperts;
  config["n_shared_experts"] = 1;
  config["moe_intermediate_size"] = width;
  config["first_k_dense_replace"] = 0;
}

}  // namespace

absl::Status WriteCostlyTarget(const CostlyTarget& target) {
  FT_ASSIGN_OR_RETURN(const weights::SafetensorsFile file,
                      weights::SafetensorsFile::Open(target.source + "/model.safetensors"));
  FT_ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, TensorsOf(file));
  const int num_read = 1 + (target.num_experts > 0 ? kChosenExperts : 0);  // MLPs of a layer for one row
  FT_ASSIGN_OR_RETURN(const int64_t width, WidthFor(tensors, target.num_bytes, num_read));
  FT_ASSIGN_OR_RETURN(const std::string config_text, base::ReadFile(target.source + "/config.json"));
  json config = json::parse(config_text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError(absl::StrCat(target.source, "/config.json: not JSON"));
  config["intermediate_size"] = width;
  if (target.num_experts > 0) AddExperts(target, width, config);
  for (const fs::directory_entry& entry : fs::directory_iterator(target.source)) {
    const fs::path name = entry.path().filename();
    if (name != "model.safetensors")
      fs::copy_file(entry, fs::path(target.directory) / name, fs::copy_options::overwrite_existing);
  }
  std::ofstream(target.directory + "/config.json", std::ios::trunc) << config.dump(2);
  const std::vector<NewTensor> experts = ExpertTensors(target, config.value("num_hidden_layers", int64_t{0}),
                                                       config.value("hidden_size", int64_t{0}), width);
  return WriteWeights(tensors, experts, width, target.directory + "/model.safetensors");
}

}  // namespace foretoken::bench
