// SPDX-License-Identifier: Apache-2.0
// The tensors of a drafter's file, under the names of its format's description. Publishers add prefixes and rename
// blocks, so a file is read through a function that gives each stored name its described one.
//
//   FT_ASSIGN_OR_RETURN(DrafterTensors tensors, DrafterTensors::Open(directory, backend, DescribedName));
//   FT_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Weight> fc, tensors.Matrix({{"fc.weight", Shape(256, 768)}}));
//   FT_RETURN_IF_ERROR(tensors.CheckAllRead());
//
// A tensor that the reader leaves out changes what the drafter computes, and nothing fails: it only guesses worse. So
// the object keeps the names of the tensors whose values were read.
//
// Errors: INVALID_ARGUMENT or NOT_FOUND with the file, the tensor, the expected and the given value. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/config/config.h"
#include "common/model/model_weights.h"
#include "common/model/weight_names.h"
#include "common/tensor/tensor.h"
#include "common/weights/checkpoint.h"
#include "kernels/backend.h"

namespace foretoken::proposer {

class DrafterTensors {
 public:
  using DescribedName = std::function<std::string(absl::string_view stored)>;

  // The backend outlives the object.
  static absl::StatusOr<DrafterTensors> Make(weights::Checkpoint checkpoint, kernels::Backend& backend,
                                             const DescribedName& described);

  bool Contains(const std::string& name) const { return stored_names_.contains(name); }
  // The shape of a tensor of this rank whatever its sizes are.
  absl::StatusOr<kernels::Shape> ShapeOf(const std::string& name, int rank) const;
  // The named tensor in host memory: F32, F16 or BF16.
  absl::StatusOr<kernels::ConstTensorView> Find(const model::WeightName& weight) const;
  absl::StatusOr<std::vector<float>> Floats(const model::WeightName& weight) const;
  // An I64 tensor of one dimension, with `count` elements.
  absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, int64_t count) const;
  // The same of BOOL or U8.
  absl::StatusOr<std::vector<bool>> Flags(const std::string& name, int64_t count) const;

  // On the backend, in the form that its options ask for: matrices of a layer, stacked along their outputs, and a
  // matrix with a row for each token.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Matrix(const std::vector<model::WeightName>& weights) const;
  absl::StatusOr<std::unique_ptr<kernels::Weight>> VocabularyMatrix(const model::WeightName& weight) const;
  // A vector as f32 on the backend, which is empty if there is no name.
  absl::StatusOr<tensor::Tensor> Vector(const std::optional<model::WeightName>& weight) const;

  // INVALID_ARGUMENT names tensors that nobody has read. Tables of rotary angles follow from the configuration.
  absl::Status CheckAllRead() const;

  kernels::Backend& backend() const { return *backend_; }
  const std::string& directory() const { return checkpoint_.directory(); }
  size_t num_bytes() const { return checkpoint_.num_bytes(); }

 private:
  DrafterTensors(weights::Checkpoint checkpoint, kernels::Backend& backend)
      : checkpoint_(std::move(checkpoint)), backend_(&backend) {}
  absl::StatusOr<std::string> StoredName(const std::string& name) const;
  absl::StatusOr<const weights::StoredTensor*> FindExact(const std::string& name, int64_t count,
                                                         std::span<const absl::string_view> dtypes) const;
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Stacked(std::span<const model::WeightName> weights,
                                                           const kernels::Quantization& quantization) const;

  weights::Checkpoint checkpoint_;
  kernels::Backend* backend_;
  std::map<std::string, std::string> stored_names_;  // by described name
  mutable std::set<std::string> read_;               // described names; to read changes nothing else
};

// Reads block `layer` of a decoder, "layers.N.*". The width of the inputs of q, k and v may differ from the hidden
// size. An absent input norm stays empty. Biases and sinks of the attention are there if the file has them, whatever
// its configuration says.
struct BlockShape {
  int64_t layer = 0;
  int64_t qkv_inputs = 0;
  bool has_input_norm = true;
};
absl::StatusOr<model::LayerWeights> LoadBlock(const model::ModelConfig& config, const BlockShape& shape,
                                              const DrafterTensors& tensors);

}  // namespace foretoken::proposer
