// SPDX-License-Identifier: Apache-2.0
#include "common/model/model_weights.h"

#include <span>
#include <utility>

#include "common/base/status_macros.h"
#include "common/model/weight_names.h"

namespace foretoken::model {
namespace {

using kernels::ConstTensorView;
using kernels::DType;

float ElementAsFloat(const ConstTensorView& view, int64_t i) {
  switch (view.dtype) {
    case DType::kBF16:
      return kernels::FloatFromBf16(view.as<uint16_t>()[i]);
    case DType::kF16:
      return kernels::FloatFromF16(view.as<uint16_t>()[i]);
    default:
      return view.as<float>()[i];
  }
}

// Reads tensors of one checkpoint onto one backend.
class Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, kernels::Backend& backend, const LoadProgress& progress)
      : checkpoint_(checkpoint), backend_(backend), progress_(progress), num_bytes_(checkpoint.num_bytes()) {}

  // One matrix of the named ones, stacked.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Matrix(std::initializer_list<const WeightName*> names) {
    std::vector<ConstTensorView> parts;
    for (const WeightName* name : names) {
      FT_ASSIGN_OR_RETURN(parts.emplace_back(), checkpoint_.Find(name->name, name->shape));
    }
    return backend_.PrepareWeight({.parts = parts, .release = [this](const void* begin, size_t num_bytes) {
                                     weights::ReleasePages(begin, num_bytes);
                                     Done(num_bytes);
                                   }});
  }

  // One f32 vector of the named ones, end to end; empty where the configuration has none of them.
  absl::StatusOr<tensor::Tensor> Vector(std::initializer_list<const WeightName*> names) {
    std::vector<float> values;
    for (const WeightName* name : names) {
      if (name == nullptr) return tensor::Tensor();
      FT_ASSIGN_OR_RETURN(const ConstTensorView view, checkpoint_.Find(name->name, name->shape));
      for (int64_t i = 0; i < view.shape.num_elements(); ++i) values.push_back(ElementAsFloat(view, i));
      Done(view.num_bytes());
    }
    return tensor::Tensor::FromHost(backend_, values);
  }

 private:
  void Done(size_t num_bytes) {
    num_bytes_done_ += num_bytes;
    if (progress_) progress_(num_bytes_done_, num_bytes_);
  }

  const weights::Checkpoint& checkpoint_;
  kernels::Backend& backend_;
  const LoadProgress& progress_;
  size_t num_bytes_;
  size_t num_bytes_done_ = 0;
};

const WeightName* OrNull(const std::optional<WeightName>& name) { return name.has_value() ? &*name : nullptr; }

absl::StatusOr<LayerWeights> LoadLayer(const LayerWeightNames& names, Loader& loader) {
  LayerWeights layer;
  FT_ASSIGN_OR_RETURN(layer.input_norm, loader.Vector({&names.input_norm}));
  FT_ASSIGN_OR_RETURN(layer.qkv, loader.Matrix({&names.q, &names.k, &names.v}));
  FT_ASSIGN_OR_RETURN(layer.qkv_bias,
                      loader.Vector({OrNull(names.q_bias), OrNull(names.k_bias), OrNull(names.v_bias)}));
  FT_ASSIGN_OR_RETURN(layer.q_norm, loader.Vector({OrNull(names.q_norm)}));
  FT_ASSIGN_OR_RETURN(layer.k_norm, loader.Vector({OrNull(names.k_norm)}));
  FT_ASSIGN_OR_RETURN(layer.o, loader.Matrix({&names.o}));
  FT_ASSIGN_OR_RETURN(layer.o_bias, loader.Vector({OrNull(names.o_bias)}));
  FT_ASSIGN_OR_RETURN(layer.post_attention_norm, loader.Vector({&names.post_attention_norm}));
  FT_ASSIGN_OR_RETURN(layer.gate_up, loader.Matrix({&names.gate, &names.up}));
  FT_ASSIGN_OR_RETURN(layer.down, loader.Matrix({&names.down}));
  return layer;
}

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const weights::Checkpoint& checkpoint,
                                         kernels::Backend& backend, const LoadProgress& progress) {
  const ModelWeightNames names = NameWeights(config);
  // All names and shapes are checked before the long copy begins.
  for (const WeightName& name : ListWeights(names)) {
    FT_RETURN_IF_ERROR(checkpoint.Find(name.name, name.shape).status());
  }
  Loader loader(checkpoint, backend, progress);
  ModelWeights weights;
  FT_ASSIGN_OR_RETURN(weights.embed, loader.Matrix({&names.embed}));
  for (const LayerWeightNames& layer : names.layers) {
    FT_ASSIGN_OR_RETURN(weights.layers.emplace_back(), LoadLayer(layer, loader));
  }
  FT_ASSIGN_OR_RETURN(weights.final_norm, loader.Vector({&names.final_norm}));
  if (!config.tie_word_embeddings) {
    FT_ASSIGN_OR_RETURN(weights.head, loader.Matrix({&names.head}));
  }
  return weights;
}

uint64_t CountParameters(const ModelConfig& config) {
  uint64_t count = 0;
  for (const WeightName& name : ListWeights(NameWeights(config))) count += name.shape.num_elements();
  return count;
}

}  // namespace foretoken::model
