// SPDX-License-Identifier: Apache-2.0
#include "common/model/model_weights.h"

#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "common/base/status_macros.h"
#include "common/model/weight_names.h"
#include "common/quantization/prepare_matrix.h"
#include "kernels/check.h"

namespace foretoken::model {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::IndexRange;
using quantization::FoundWeight;
using quantization::MatrixPart;

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

// A range of rows of a matrix, or of elements of a vector.
ConstTensorView Slice(ConstTensorView view, const IndexRange& range) {
  const int64_t elements_each = view.shape.num_elements() / view.shape[0];
  view.data = view.as<std::byte>() + range.begin * elements_each * kernels::SizeOf(view.dtype);
  view.shape.dims[0] = range.size();
  return view;
}

using Names = std::vector<const WeightName*>;

// Reads one shard's part of the tensors of a checkpoint onto one backend.
class Loader {
 public:
  struct Source {
    const quantization::OpenedWeights& opened;
    const quantization::QuantizationConfig& quantization;
    float norm_offset = 0;
  };
  Loader(const Source& source, kernels::Backend& backend, WeightReader& reader, const Shard& shard)
      : source_(source), backend_(backend), reader_(reader), shard_(shard) {}

  // Stacks the named matrices of a layer into one; of each it takes the shard's part of the outputs.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> ByOutputs(std::span<const WeightName> names) {
    return Stacked(names, backend_.weight_quantization());
  }
  // All of a matrix that every shard has, and that no option quantises.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> WholeMatrix(const WeightName& name) {
    FT_ASSIGN_OR_RETURN(const FoundWeight* whole, Find(name));
    const auto release = [this](const void* begin, size_t num_bytes) {
      const bool is_first = shard_.rank == 0;
      reader_.Release(
          {.begin = begin, .num_bytes = num_bytes, .num_own_bytes = is_first ? num_bytes : 0, .is_digested = is_first});
    };
    const MatrixPart part = {.weight = whole, .rows = {.begin = 0, .end = name.shape[0]}};
    return Prepare({.parts = std::span(&part, 1), .release = release});
  }
  // The shard's part of the vocabulary.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Vocabulary(const WeightName& name) {
    return Stacked(std::span(&name, 1), backend_.head_quantization());
  }

  // The shard's part of the matrix's inputs. It also releases pages that hold other ranks' parts; a rank that reads
  // them later gets them from the page cache.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> ByInputs(const WeightName& name) {
    FT_ASSIGN_OR_RETURN(const FoundWeight* whole, Find(name));
    const IndexRange inputs = ShareOf(name.shape[1], shard_);
    const auto release = [&](const void* begin, size_t num_bytes) {
      reader_.Release({.begin = begin,
                       .num_bytes = num_bytes,
                       .num_own_bytes = num_bytes / name.shape[1] * inputs.size(),
                       .is_digested = shard_.rank == 0});
    };
    const MatrixPart part = {.weight = whole, .rows = {.begin = 0, .end = name.shape[0]}};
    return Prepare({.parts = std::span(&part, 1),
                    .inputs = inputs,
                    .quantization = backend_.weight_quantization(),
                    .release = release});
  }

  // Two ways to join the named vectors end to end as f32; empty if the configuration has none of them. Whole gives
  // every shard all of them, and Part gives it its part of each.
  absl::StatusOr<tensor::Tensor> Whole(const Names& names) { return Vector(names, {}); }
  absl::StatusOr<tensor::Tensor> Part(const Names& names) { return Vector(names, shard_); }
  // The gain of a norm; empty if the configuration has none. A norm of every rank's own heads takes a part.
  absl::StatusOr<tensor::Tensor> Gain(const WeightName* name) { return Vector({name}, {}, source_.norm_offset); }
  absl::StatusOr<tensor::Tensor> PartOfGain(const WeightName* name) {
    return Vector({name}, shard_, source_.norm_offset);
  }

 private:
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Stacked(std::span<const WeightName> names,
                                                           const kernels::Quantization& quantization) {
    std::vector<MatrixPart> parts;
    for (const WeightName& name : names) {
      FT_ASSIGN_OR_RETURN(const FoundWeight* whole, Find(name));
      const IndexRange rows = ShareOf(name.shape[0], shard_);
      parts.push_back({.weight = whole, .rows = {name.first_row + rows.begin, name.first_row + rows.end}});
    }
    const auto release = [this](const void* begin, size_t num_bytes) {
      reader_.Release({.begin = begin, .num_bytes = num_bytes, .num_own_bytes = num_bytes});
    };
    return Prepare({.parts = parts, .quantization = quantization, .release = release});
  }

  // Every rank reads all tensors of a stored matrix, because a part of them is no part of the matrix in every format.
  // Rank 0 digests and counts them.
  std::unique_ptr<kernels::Weight> Prepare(quantization::MatrixSource source) {
    source.fetch = [this](const void* begin, size_t num_bytes) { reader_.Fetch(begin, num_bytes); };
    source.fetch_tensor = source.fetch;
    source.release_tensor = [this](const void* begin, size_t num_bytes) {
      const bool is_first = shard_.rank == 0;
      reader_.Release(
          {.begin = begin, .num_bytes = num_bytes, .num_own_bytes = is_first ? num_bytes : 0, .is_digested = is_first});
    };
    std::unique_ptr<kernels::Weight> weight = quantization::PrepareMatrix(source, backend_);
    // The system maps pages around a page that is read, so some came back after their release.
    for (const MatrixPart& part : source.parts) {
      for (const quantization::NamedTensor& named : part.weight->tensors) {
        weights::ReleasePages(named.tensor->bytes.data(), named.tensor->bytes.size());
      }
    }
    return weight;
  }

  absl::StatusOr<const FoundWeight*> Find(const WeightName& role) const {
    const WeightName name = role.stored();
    return source_.opened.Find(name.name, name.shape, source_.quantization);
  }

  absl::StatusOr<tensor::Tensor> Vector(const Names& names, const Shard& shard, float offset = 0) {
    std::vector<float> values;
    for (const WeightName* name : names) {
      if (name == nullptr) return tensor::Tensor();
      FT_ASSIGN_OR_RETURN(const ConstTensorView whole, source_.opened.checkpoint()->Find(name->name, name->shape));
      const ConstTensorView part = Slice(whole, ShareOf(whole.shape[0], shard));
      for (int64_t i = 0; i < part.shape.num_elements(); ++i) values.push_back(ElementAsFloat(part, i) + offset);
      // Data that all shards have is counted once.
      if (shard.num_ranks == shard_.num_ranks || shard_.rank == 0) reader_.Count(part.num_bytes());
    }
    return values.empty() ? tensor::Tensor() : tensor::Tensor::FromHost(backend_, values);
  }

  const Source source_;
  kernels::Backend& backend_;
  WeightReader& reader_;
  const Shard shard_;
};

Loader::Source SourceOf(const ModelConfig& config, const quantization::OpenedWeights& opened) {
  return {.opened = opened, .quantization = config.quantization, .norm_offset = static_cast<float>(config.norm_offset)};
}

const WeightName* OrNull(const std::optional<WeightName>& name) { return name.has_value() ? &*name : nullptr; }

absl::StatusOr<ExpertMatrices> LoadExpert(const ExpertWeightNames& names, const Shard& shard, Loader& loader) {
  ExpertMatrices expert;
  FT_ASSIGN_OR_RETURN(expert.gate_up, loader.ByOutputs(names.gate_up));
  Names biases;
  for (const WeightName& bias : names.gate_up_bias) biases.push_back(&bias);
  FT_ASSIGN_OR_RETURN(expert.gate_up_bias, loader.Part(biases));
  FT_ASSIGN_OR_RETURN(expert.down, loader.ByInputs(names.down));
  if (shard.rank == 0) {
    FT_ASSIGN_OR_RETURN(expert.down_bias, loader.Whole({OrNull(names.down_bias)}));
  }
  return expert;
}

absl::StatusOr<LayerWeights> LoadLayer(const ModelConfig& config, const LayerWeightNames& names, const Shard& shard,
                                       Loader& loader) {
  LayerWeights layer;
  FT_ASSIGN_OR_RETURN(layer.input_norm, loader.Gain(OrNull(names.input_norm)));
  FT_ASSIGN_OR_RETURN(layer.qkv, loader.ByOutputs(std::array{names.q, names.k, names.v}));
  FT_ASSIGN_OR_RETURN(layer.qkv_bias, loader.Part({OrNull(names.q_bias), OrNull(names.k_bias), OrNull(names.v_bias)}));
  const auto head_gain = [&](const std::optional<WeightName>& name) {
    return config.whole_qk_norm ? loader.PartOfGain(OrNull(name)) : loader.Gain(OrNull(name));
  };
  FT_ASSIGN_OR_RETURN(layer.q_norm, head_gain(names.q_norm));
  FT_ASSIGN_OR_RETURN(layer.k_norm, head_gain(names.k_norm));
  FT_ASSIGN_OR_RETURN(layer.o, loader.ByInputs(names.o));
  if (shard.rank == 0) {
    FT_ASSIGN_OR_RETURN(layer.o_bias, loader.Whole({OrNull(names.o_bias)}));
  }
  FT_ASSIGN_OR_RETURN(layer.sinks, loader.Part({OrNull(names.sinks)}));
  FT_ASSIGN_OR_RETURN(layer.attention_post_norm, loader.Gain(OrNull(names.attention_post_norm)));
  FT_ASSIGN_OR_RETURN(layer.mlp_norm, loader.Gain(OrNull(names.mlp_norm)));
  FT_ASSIGN_OR_RETURN(layer.mlp_post_norm, loader.Gain(OrNull(names.mlp_post_norm)));
  if (names.router) {
    FT_ASSIGN_OR_RETURN(layer.router, loader.WholeMatrix(*names.router));
    FT_ASSIGN_OR_RETURN(layer.router_bias, loader.Whole({OrNull(names.router_bias)}));
    FT_ASSIGN_OR_RETURN(layer.choice_bias, loader.Whole({OrNull(names.choice_bias)}));
  }
  if (names.gate.name.empty()) return layer;
  FT_ASSIGN_OR_RETURN(layer.gate_up, loader.ByOutputs(std::array{names.gate, names.up}));
  FT_ASSIGN_OR_RETURN(layer.gate_up_bias, loader.Part({OrNull(names.gate_bias), OrNull(names.up_bias)}));
  FT_ASSIGN_OR_RETURN(layer.down, loader.ByInputs(names.down));
  if (shard.rank == 0) {
    FT_ASSIGN_OR_RETURN(layer.down_bias, loader.Whole({OrNull(names.down_bias)}));
  }
  return layer;
}

absl::StatusOr<ModelWeights> LoadAllButExperts(const ModelConfig& config, const ModelWeightNames& names,
                                               const Shard& shard, Loader& loader) {
  ModelWeights weights;
  FT_ASSIGN_OR_RETURN(weights.embed, loader.Vocabulary(names.embed));
  for (const LayerWeightNames& layer : names.layers) {
    FT_ASSIGN_OR_RETURN(weights.layers.emplace_back(), LoadLayer(config, layer, shard, loader));
  }
  FT_ASSIGN_OR_RETURN(weights.final_norm, loader.Gain(&names.final_norm));
  if (!config.tie_word_embeddings) {
    FT_ASSIGN_OR_RETURN(weights.head, loader.Vocabulary(names.head));
  }
  return weights;
}

absl::StatusOr<std::unique_ptr<ExpertStore>> LoadExperts(const ModelWeightNames& names, const Shard& shard,
                                                         Loader& loader) {
  auto store = std::make_unique<ExpertStore>(static_cast<int64_t>(names.layers.size()));
  for (int32_t layer_idx = 0; layer_idx < std::ssize(names.layers); ++layer_idx) {
    for (const ExpertWeightNames& expert : names.layers[layer_idx].experts) {
      FT_ASSIGN_OR_RETURN(ExpertMatrices matrices, LoadExpert(expert, shard, loader));
      store->Keep(layer_idx, std::move(matrices));
    }
  }
  return store;
}

// What reading single experts needs beside the files.
struct ExpertReading {
  ModelConfig config;
  std::shared_ptr<const weights::Checkpoint> checkpoint;
  ModelWeightNames names;
  WeightReader reader{{}};
};

}  // namespace

absl::Status CheckWeights(const ModelConfig& config, const quantization::OpenedWeights& opened) {
  for (const WeightName& name : ListWeights(NameWeights(config))) {
    FT_RETURN_IF_ERROR(opened.Find(name.name, name.shape, config.quantization).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const quantization::OpenedWeights& opened,
                                         kernels::Backend& backend, WeightReader& reader, const Shard& shard) {
  const ModelWeightNames names = NameWeights(config);
  FT_RETURN_IF_ERROR(CheckWeights(config, opened));
  Loader loader(SourceOf(config, opened), backend, reader, shard);
  FT_ASSIGN_OR_RETURN(ModelWeights weights, LoadAllButExperts(config, names, shard, loader));
  if (config.experts.num_experts > 0) {
    FT_ASSIGN_OR_RETURN(weights.experts, LoadExperts(names, shard, loader));
  }
  return weights;
}

absl::StatusOr<ModelWeights> LoadWithoutExperts(const ModelConfig& config, const quantization::OpenedWeights& opened,
                                                kernels::Backend& backend, WeightReader& reader, const Shard& shard) {
  const ModelWeightNames names = NameWeights(config);
  FT_RETURN_IF_ERROR(CheckWeights(config, opened));
  Loader loader(SourceOf(config, opened), backend, reader, shard);
  return LoadAllButExperts(config, names, shard, loader);
}

ExpertStore::Pack ExpertPacker(const ModelConfig& config, std::shared_ptr<const weights::Checkpoint> checkpoint,
                               kernels::Backend& backend, const Shard& shard) {
  // Shared, because std::function must be copyable.
  std::shared_ptr<ExpertReading> reading(
      new ExpertReading{.config = config, .checkpoint = std::move(checkpoint), .names = NameWeights(config)});
  return [reading = std::move(reading), &backend, shard](int32_t layer_idx, int32_t expert_idx) {
    const quantization::OpenedWeights opened(*reading->checkpoint);
    Loader loader(SourceOf(reading->config, opened), backend, reading->reader, shard);
    absl::StatusOr<ExpertMatrices> expert =
        LoadExpert(reading->names.layers[layer_idx].experts[expert_idx], shard, loader);
    FT_CHECK(expert.ok());  // the tensors were checked at the start
    return *std::move(expert);
  };
}

uint64_t CountParameters(const ModelConfig& config) {
  uint64_t count = 0;
  for (const WeightName& name : ListWeights(NameWeights(config))) count += name.shape.num_elements();
  return count;
}

}  // namespace foretoken::model
