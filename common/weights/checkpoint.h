// SPDX-License-Identifier: Apache-2.0
// A Hugging Face checkpoint directory: model.safetensors, or shards named by model.safetensors.index.json. Or a GGUF
// file, or the parts of one, whose tensors have the names that a directory of the same model would give them. Stacks of
// experts appear as single experts (expert_stacks.h). Every file is mapped as long as the object lives; only some
// biases of GGUF are copied, to bring them in order.
//
//   FT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open("models/llama"));
//   FT_ASSIGN_OR_RETURN(const kernels::ConstTensorView norm,
//                       checkpoint.Find("model.norm.weight", kernels::Shape(hidden_size)));
//   ... copy it to its place ...
//   ReleasePages(norm.data, norm.num_bytes());
//
// Errors: INVALID_ARGUMENT or NOT_FOUND with the file, the tensor, the expected and the given value.
// Threads: immutable after Open.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mapped_file.h"
#include "common/weights/safetensors.h"
#include "kernels/tensor_view.h"

namespace foretoken::weights {

class Checkpoint {
 public:
  // Maps all files and checks their headers. If a directory has both layouts, the single file counts, as in
  // transformers.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  // Maps one file of the directory.
  static absl::StatusOr<Checkpoint> OpenFile(const std::string& directory, absl::string_view file_name);

  const std::string& directory() const { return directory_; }  // or the GGUF file
  bool Contains(absl::string_view name) const { return files_by_tensor_.contains(name); }
  // The named tensor as it is stored, of any dtype; null: there is none.
  const StoredTensor* FindStored(absl::string_view name) const;
  // The names of all tensors, sorted.
  std::vector<std::string> Names() const;
  // The bytes of all tensors together, as stored.
  size_t num_bytes() const;

  // The named tensor as a weight: F32, F16 or BF16, of exactly this shape, in host memory that lives as long as the
  // checkpoint.
  absl::StatusOr<kernels::ConstTensorView> Find(absl::string_view name, const kernels::Shape& expected_shape) const;

 private:
  explicit Checkpoint(std::string directory) : directory_(std::move(directory)) {}
  absl::Status OpenSingleFile(const std::string& path);
  absl::Status OpenShards(const std::string& index_path);
  absl::Status OpenGguf();
  void SplitStacks();
  absl::StatusOr<size_t> AddSafetensors(const std::string& path);

  struct File {
    base::MappedFile mapping;
    StoredTensors tensors;
  };
  std::string directory_;
  std::vector<File> files_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;          // of tensors that do not lie in a file as they are
  absl::flat_hash_map<std::string, size_t> files_by_tensor_;  // index into files_
};

// Loads the pages of a mapped range with one call, from the disk if they are not cached. This is faster than page by
// page.
void FetchPages(const void* begin, size_t num_bytes);

// Releases the resident memory of the whole pages inside a mapped range that has been copied. The range stays readable:
// its pages are read from the file again.
void ReleasePages(const void* begin, size_t num_bytes);

}  // namespace foretoken::weights
