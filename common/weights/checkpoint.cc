// SPDX-License-Identifier: Apache-2.0
#include "common/weights/checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/gguf/architectures.h"
#include "common/gguf/gguf_model.h"
#include "common/weights/expert_stacks.h"

namespace foretoken::weights {
namespace {

using nlohmann::json;

std::optional<kernels::DType> WeightDType(absl::string_view stored) {
  for (const auto dtype : {kernels::DType::kF32, kernels::DType::kF16, kernels::DType::kBF16}) {
    if (stored == kernels::Name(dtype)) return dtype;
  }
  return std::nullopt;
}

std::vector<int64_t> Dims(const kernels::Shape& shape) { return {shape.dims.begin(), shape.dims.begin() + shape.rank}; }

// Also if it is a link to a file that is not there.
bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

// Tensor name -> shard file name.
absl::StatusOr<json> ReadWeightMap(const std::string& index_path) {
  FT_ASSIGN_OR_RETURN(json index, base::ReadJson(index_path));
  const bool has_map = index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  if (!has_map) return absl::InvalidArgumentError(absl::StrCat(index_path, ": weight_map is missing or no object"));
  return std::move(index["weight_map"]);
}

// The other files of weights in a directory, for a message: ", but pytorch_model.bin and 2 more files of weights: ...".
std::string DescribeOtherWeights(const std::string& directory) {
  constexpr size_t kMaxShown = 3;
  constexpr size_t kMaxShownBytes = 80;
  constexpr absl::string_view kEndings[] = {".bin", ".gguf",    ".pt",   ".pth",        ".ckpt",
                                            ".h5",  ".msgpack", ".onnx", ".safetensors"};
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    const auto is_ending = [&](absl::string_view ending) { return absl::EndsWith(name, ending); };
    if (std::ranges::any_of(kEndings, is_ending)) names.push_back(std::move(name));
  }
  if (names.empty()) return "";
  std::ranges::sort(names);
  const size_t num_shown = std::min(names.size(), kMaxShown);
  std::string text = ", but ";
  for (size_t i = 0; i < num_shown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", absl::Utf8SafeCHexEscape(names[i]).substr(0, kMaxShownBytes));
  }
  if (names.size() > num_shown) absl::StrAppend(&text, " and ", names.size() - num_shown, " more files of weights");
  absl::StrAppend(&text,
                  ". A directory's weights are read from safetensors alone, under the names that transformers gives "
                  "them: its save_pretrained converts a model. A GGUF file is named by its own path");
  constexpr absl::string_view kPickles[] = {".bin", ".pt", ".pth", ".ckpt"};
  const auto pickle = std::ranges::find_if(names, [&](const std::string& name) {
    return std::ranges::any_of(kPickles, [&](absl::string_view ending) { return absl::EndsWith(name, ending); });
  });
  if (pickle == names.end()) return text;
  return absl::StrCat(
      text,
      ". A pickle can run code when it is read. This converts one without that: python3 -c 'import torch; from "
      "safetensors.torch import save_file; save_file({k: v.clone(memory_format=torch.contiguous_format) for k, v in "
      "torch.load(\"",
      absl::Utf8SafeCHexEscape(*pickle).substr(0, kMaxShownBytes),
      "\", map_location=\"cpu\", weights_only=True).items()}, \"model.safetensors\")'");
}

// A vector whose elements are in the model's order.
absl::StatusOr<StoredTensor> CopyInOrder(const StoredTensor& from, const std::string& where,
                                         std::vector<std::unique_ptr<std::byte[]>>& copies) {
  constexpr int64_t kMaxElements = int64_t{1} << 24;
  const int64_t num_elements = from.shape[0];
  const std::optional<kernels::DType> dtype = WeightDType(from.dtype);
  if (!dtype || num_elements > kMaxElements || num_elements % *from.interleaved_head_dim != 0) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": expected floats of whole heads of ",
                                                   *from.interleaved_head_dim, ", got ", from.dtype, " [", num_elements,
                                                   "]"));
  }
  const size_t size = kernels::SizeOf(*dtype);
  const auto& copy = copies.emplace_back(std::make_unique<std::byte[]>(from.bytes.size()));
  for (int64_t i = 0; i < num_elements; ++i) {
    std::memcpy(copy.get() + i * size, from.bytes.data() + StoredRow(from, i) * size, size);
  }
  return StoredTensor{.dtype = from.dtype, .shape = from.shape, .bytes = {copy.get(), from.bytes.size()}};
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint(directory);
  if (gguf::IsGgufPath(directory)) {
    FT_RETURN_IF_ERROR(checkpoint.OpenGguf());
    return checkpoint;
  }
  const std::string single_path = directory + "/model.safetensors";
  const std::string index_path = directory + "/model.safetensors.index.json";
  if (Exists(single_path)) {
    FT_RETURN_IF_ERROR(checkpoint.OpenSingleFile(single_path));
  } else if (Exists(index_path)) {
    FT_RETURN_IF_ERROR(checkpoint.OpenShards(index_path));
  } else {
    return absl::NotFoundError(absl::StrCat(directory, ": neither model.safetensors nor model.safetensors.index.json",
                                            DescribeOtherWeights(directory)));
  }
  return checkpoint;
}

absl::StatusOr<Checkpoint> Checkpoint::OpenFile(const std::string& directory, absl::string_view file_name) {
  Checkpoint checkpoint(directory);
  FT_RETURN_IF_ERROR(checkpoint.OpenSingleFile(absl::StrCat(directory, "/", file_name)));
  return checkpoint;
}

const StoredTensor* Checkpoint::FindStored(absl::string_view name) const {
  const auto found = files_by_tensor_.find(name);
  return found == files_by_tensor_.end() ? nullptr : &files_[found->second].tensors.at(found->first);
}

absl::StatusOr<size_t> Checkpoint::AddSafetensors(const std::string& path) {
  FT_ASSIGN_OR_RETURN(base::MappedFile mapping, base::MappedFile::Open(path));
  FT_ASSIGN_OR_RETURN(StoredTensors tensors, ReadSafetensors(mapping.bytes(), path));
  files_.push_back({.mapping = std::move(mapping), .tensors = std::move(tensors)});
  return files_.size() - 1;
}

absl::Status Checkpoint::OpenSingleFile(const std::string& path) {
  FT_ASSIGN_OR_RETURN(const size_t file_idx, AddSafetensors(path));
  for (const auto& [name, tensor] : files_[file_idx].tensors) files_by_tensor_.emplace(name, file_idx);
  SplitStacks();
  return absl::OkStatus();
}

// An expert that is there by itself stays.
void Checkpoint::SplitStacks() {
  // Of a hostile file, which could have a stack for every few bytes.
  constexpr size_t kMaxTensors = size_t{1} << 19;
  size_t num_tensors = 0;
  for (const std::string& name : Names()) {
    if (num_tensors >= kMaxTensors) break;
    const size_t file_idx = files_by_tensor_.at(name);
    StoredTensors& tensors = files_[file_idx].tensors;
    auto experts = SplitExperts(name, tensors.at(name));
    num_tensors += experts.size();
    if (experts.empty()) continue;
    tensors.erase(name);
    files_by_tensor_.erase(name);
    for (auto& [expert_name, tensor] : experts) {
      if (files_by_tensor_.emplace(expert_name, file_idx).second) tensors.emplace(expert_name, std::move(tensor));
    }
  }
}

absl::Status Checkpoint::OpenGguf() {
  FT_ASSIGN_OR_RETURN(gguf::GgufModel model, gguf::GgufModel::Open(directory_));
  FT_ASSIGN_OR_RETURN(const gguf::Architecture* const architecture, gguf::FindArchitecture(model.metadata()));
  std::optional<int64_t> interleaved_head_dim;
  if (architecture->interleaves_heads) {
    FT_ASSIGN_OR_RETURN(interleaved_head_dim, gguf::HeadDim(model.metadata(), *architecture));
  }
  for (gguf::GgufFile& file : std::move(model).TakeFiles()) {
    StoredTensors tensors;
    for (const auto& [name, stored] : file.tensors()) {
      const std::optional<std::string> hugging_face_name = gguf::HuggingFaceName(*architecture, name);
      if (!hugging_face_name) continue;
      StoredTensor tensor = {.dtype = std::string(stored.type.name), .shape = stored.shape, .bytes = stored.bytes};
      if (gguf::IsRotated(name)) tensor.interleaved_head_dim = interleaved_head_dim;
      if (tensor.interleaved_head_dim && tensor.shape.size() == 1) {
        FT_ASSIGN_OR_RETURN(tensor, CopyInOrder(tensor, absl::StrCat(file.path(), ": tensor ", name), copies_));
      }
      files_by_tensor_.emplace(*hugging_face_name, files_.size());
      tensors.emplace(*hugging_face_name, std::move(tensor));
    }
    files_.push_back({.mapping = std::move(file).TakeMapping(), .tensors = std::move(tensors)});
  }
  SplitStacks();
  return absl::OkStatus();
}

absl::Status Checkpoint::OpenShards(const std::string& index_path) {
  FT_ASSIGN_OR_RETURN(const json weight_map, ReadWeightMap(index_path));
  absl::flat_hash_map<std::string, size_t> files_by_shard;
  for (const auto& [name, shard_name] : weight_map.items()) {
    const auto where = absl::StrCat(index_path, ": tensor ", name);
    if (!shard_name.is_string()) return absl::InvalidArgumentError(absl::StrCat(where, ": the shard is not a string"));
    const auto& shard = shard_name.get_ref<const std::string&>();
    if (shard.find('/') != std::string::npos || !absl::EndsWith(shard, ".safetensors")) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": expected the name of a .safetensors file beside the index, got ", shard));
    }
    const auto [entry, is_new] = files_by_shard.emplace(shard, files_.size());
    if (is_new) {
      const absl::Status added = AddSafetensors(absl::StrCat(directory_, "/", shard)).status();
      if (!added.ok()) return absl::Status(added.code(), absl::StrCat(where, ": ", added.message()));
    }
    const File& file = files_[entry->second];
    if (!file.tensors.contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": ", file.mapping.path(), " does not hold it"));
    }
    files_by_tensor_.emplace(name, entry->second);
  }
  SplitStacks();
  return absl::OkStatus();
}

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  names.reserve(files_by_tensor_.size());
  for (const auto& [name, file_idx] : files_by_tensor_) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

size_t Checkpoint::num_bytes() const {
  size_t total = 0;
  for (const auto& [name, file_idx] : files_by_tensor_) total += files_[file_idx].tensors.at(name).bytes.size();
  return total;
}

absl::StatusOr<kernels::ConstTensorView> Checkpoint::Find(absl::string_view name,
                                                          const kernels::Shape& expected_shape) const {
  const std::vector<int64_t> expected_dims = Dims(expected_shape);
  const auto found = files_by_tensor_.find(name);
  if (found == files_by_tensor_.end()) {
    return absl::NotFoundError(absl::StrCat(directory_, ": tensor ", name, " [", absl::StrJoin(expected_dims, ", "),
                                            "] is missing among the checkpoint's ", files_by_tensor_.size()));
  }
  const File& file = files_[found->second];
  const StoredTensor& tensor = file.tensors.at(found->first);
  const auto where = absl::StrCat(file.mapping.path(), ": tensor ", name);
  const std::optional<kernels::DType> dtype = WeightDType(tensor.dtype);
  if (!dtype) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": expected dtype F32, F16 or BF16, got ", tensor.dtype));
  }
  if (tensor.shape != expected_dims) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": expected shape [", absl::StrJoin(expected_dims, ", "),
                                                   "], got [", absl::StrJoin(tensor.shape, ", "), "]"));
  }
  // The format allows any place. A copy would take memory, and in such a file often that of all tensors.
  if (reinterpret_cast<uintptr_t>(tensor.bytes.data()) % kernels::SizeOf(*dtype) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": its bytes lie at no multiple of ", kernels::SizeOf(*dtype),
                                                   " in the file. Load the file with load_file of the safetensors "
                                                   "package and save it with save_file, which aligns "
                                                   "all tensors"));
  }
  return kernels::ConstTensorView{.data = tensor.bytes.data(), .dtype = *dtype, .shape = expected_shape};
}

void FetchPages(const void* begin, size_t num_bytes) {
#ifdef MADV_POPULATE_READ
  const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = address / page_bytes * page_bytes;
  // If an older Linux refuses, the pages are loaded one by one.
  ::madvise(reinterpret_cast<void*>(first), address + num_bytes - first, MADV_WILLNEED);  // one request to the disk
  ::madvise(reinterpret_cast<void*>(first), address + num_bytes - first, MADV_POPULATE_READ);
#endif
}

void ReleasePages(const void* begin, size_t num_bytes) {
  const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = (address + page_bytes - 1) / page_bytes * page_bytes;
  const uintptr_t last = (address + num_bytes) / page_bytes * page_bytes;
  // If Linux refuses, the pages stay resident.
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace foretoken::weights
