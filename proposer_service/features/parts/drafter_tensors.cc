// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/parts/drafter_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "kernels/dtype.h"

namespace foretoken::proposer {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using model::WeightName;

absl::StatusOr<DrafterTensors> DrafterTensors::Make(weights::Checkpoint checkpoint, kernels::Backend& backend,
                                                    const DescribedName& described) {
  DrafterTensors tensors(std::move(checkpoint), backend);
  for (const std::string& stored : tensors.checkpoint_.Names()) {
    const auto [place, is_new] = tensors.stored_names_.emplace(described(stored), stored);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(tensors.directory(), ": tensors ", place->second, " and ", stored,
                                                     " are both ", place->first, " of the format"));
    }
  }
  return tensors;
}

absl::StatusOr<std::string> DrafterTensors::StoredName(const std::string& name) const {
  const auto found = stored_names_.find(name);
  if (found != stored_names_.end()) return found->second;
  return absl::NotFoundError(
      absl::StrCat(directory(), ": tensor ", name, " is missing among the checkpoint's ", stored_names_.size()));
}

absl::StatusOr<Shape> DrafterTensors::ShapeOf(const std::string& name, int rank) const {
  FT_ASSIGN_OR_RETURN(const std::string stored_name, StoredName(name));
  const weights::StoredTensor& stored = *checkpoint_.FindStored(stored_name);
  Shape shape;
  shape.rank = rank;
  if (static_cast<int>(stored.shape.size()) != rank) {
    return absl::InvalidArgumentError(absl::StrCat(directory(), ": tensor ", stored_name, ": expected ", rank,
                                                   " dimensions, got [", absl::StrJoin(stored.shape, ", "), "]"));
  }
  for (int i = 0; i < rank; ++i) shape.dims[i] = stored.shape[i];
  return shape;
}

absl::StatusOr<ConstTensorView> DrafterTensors::Find(const WeightName& weight) const {
  FT_ASSIGN_OR_RETURN(const std::string stored_name, StoredName(weight.name));
  read_.insert(weight.name);
  return checkpoint_.Find(stored_name, weight.shape);
}

absl::StatusOr<std::vector<float>> DrafterTensors::Floats(const WeightName& weight) const {
  FT_ASSIGN_OR_RETURN(const ConstTensorView view, Find(weight));
  std::vector<float> values(static_cast<size_t>(view.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = view.dtype == DType::kF32   ? view.as<float>()[i]
                : view.dtype == DType::kF16 ? kernels::FloatFromF16(view.as<uint16_t>()[i])
                                            : kernels::FloatFromBf16(view.as<uint16_t>()[i]);
  }
  return values;
}

absl::StatusOr<const weights::StoredTensor*> DrafterTensors::FindExact(
    const std::string& name, int64_t count, std::span<const absl::string_view> dtypes) const {
  FT_ASSIGN_OR_RETURN(const std::string stored_name, StoredName(name));
  read_.insert(name);
  const weights::StoredTensor& stored = *checkpoint_.FindStored(stored_name);
  if (std::ranges::count(dtypes, stored.dtype) > 0 && stored.shape == std::vector<int64_t>{count}) return &stored;
  return absl::InvalidArgumentError(absl::StrCat(directory(), ": tensor ", stored_name, ": expected ",
                                                 absl::StrJoin(dtypes, " or "), " [", count, "], got ", stored.dtype,
                                                 " [", absl::StrJoin(stored.shape, ", "), "]"));
}

absl::StatusOr<std::vector<int64_t>> DrafterTensors::Integers(const std::string& name, int64_t count) const {
  constexpr absl::string_view kDtypes[] = {"I64"};
  FT_ASSIGN_OR_RETURN(const weights::StoredTensor* const stored, FindExact(name, count, kDtypes));
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::memcpy(values.data(), stored->bytes.data(), stored->bytes.size());
  return values;
}

absl::StatusOr<std::vector<bool>> DrafterTensors::Flags(const std::string& name, int64_t count) const {
  constexpr absl::string_view kDtypes[] = {"BOOL", "U8"};
  FT_ASSIGN_OR_RETURN(const weights::StoredTensor* const stored, FindExact(name, count, kDtypes));
  std::vector<bool> values;
  for (const auto byte : stored->bytes) values.push_back(static_cast<uint8_t>(byte) != 0);
  return values;
}

absl::Status DrafterTensors::CheckAllRead() const {
  constexpr size_t kMaxShown = 3;
  std::vector<std::string> unread;
  for (const auto& [name, stored_name] : stored_names_) {
    if (!read_.contains(name) && !absl::EndsWith(name, "rotary_emb.inv_freq")) unread.push_back(stored_name);
  }
  if (unread.empty()) return absl::OkStatus();
  const size_t num_shown = std::min(unread.size(), kMaxShown);
  std::string names = absl::StrJoin(std::span(unread).first(num_shown), ", ");
  if (unread.size() > num_shown) absl::StrAppend(&names, " and ", unread.size() - num_shown, " more");
  return absl::InvalidArgumentError(absl::StrCat(directory(),
                                                 ": expected only tensors that this method reads, got also ", names,
                                                 ". The drafter would compute something else without them"));
}

absl::StatusOr<std::unique_ptr<kernels::Weight>> DrafterTensors::Matrix(const std::vector<WeightName>& weights) const {
  return Stacked(weights, backend_->weight_quantization());
}

absl::StatusOr<std::unique_ptr<kernels::Weight>> DrafterTensors::VocabularyMatrix(const WeightName& weight) const {
  return Stacked(std::span(&weight, 1), backend_->head_quantization());
}

absl::StatusOr<std::unique_ptr<kernels::Weight>> DrafterTensors::Stacked(
    std::span<const WeightName> weights, const kernels::Quantization& quantization) const {
  std::vector<ConstTensorView> parts;
  for (const WeightName& weight : weights) {
    FT_ASSIGN_OR_RETURN(parts.emplace_back(), Find(weight));
  }
  return backend_->PrepareWeight(
      {.parts = parts, .quantization = quantization, .fetch = weights::FetchPages, .release = weights::ReleasePages});
}

absl::StatusOr<tensor::Tensor> DrafterTensors::Vector(const std::optional<WeightName>& weight) const {
  if (!weight.has_value()) return tensor::Tensor();
  FT_ASSIGN_OR_RETURN(const std::vector<float> values, Floats(*weight));
  return tensor::Tensor::FromHost(*backend_, values);
}

absl::StatusOr<model::LayerWeights> LoadBlock(const model::ModelConfig& config, const BlockShape& shape,
                                              const DrafterTensors& tensors) {
  const int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
  const int64_t q_size = config.num_heads * config.head_dim, kv_size = config.num_kv_heads * config.head_dim;
  const std::string prefix = absl::StrCat("layers.", shape.layer, ".");
  const auto norm = [&](absl::string_view role, int64_t size) {
    return WeightName{absl::StrCat(prefix, role, ".weight"), Shape(size)};
  };
  const auto matrix = [&](absl::string_view role, int64_t outputs, int64_t inputs) {
    return WeightName{absl::StrCat(prefix, role, ".weight"), Shape(outputs, inputs)};
  };
  model::LayerWeights block;
  if (shape.has_input_norm) {
    FT_ASSIGN_OR_RETURN(block.input_norm, tensors.Vector(norm("input_layernorm", hidden)));
  }
  FT_ASSIGN_OR_RETURN(block.qkv, tensors.Matrix({matrix("self_attn.q_proj", q_size, shape.qkv_inputs),
                                                 matrix("self_attn.k_proj", kv_size, shape.qkv_inputs),
                                                 matrix("self_attn.v_proj", kv_size, shape.qkv_inputs)}));
  if (config.attention_bias || tensors.Contains(absl::StrCat(prefix, "self_attn.q_proj.bias"))) {
    std::vector<float> joined;
    for (const auto& [role, size] : {std::pair("q", q_size), {"k", kv_size}, {"v", kv_size}}) {
      const WeightName bias{absl::StrCat(prefix, "self_attn.", role, "_proj.bias"), Shape(size)};
      FT_ASSIGN_OR_RETURN(const std::vector<float> part, tensors.Floats(bias));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    block.qkv_bias = tensor::Tensor::FromHost(tensors.backend(), joined);
  }
  if (config.qk_norm) {
    FT_ASSIGN_OR_RETURN(block.q_norm, tensors.Vector(norm("self_attn.q_norm", config.head_dim)));
    FT_ASSIGN_OR_RETURN(block.k_norm, tensors.Vector(norm("self_attn.k_norm", config.head_dim)));
  }
  const WeightName sinks{absl::StrCat(prefix, "self_attn.attention_sink_bias"), Shape(config.num_heads)};
  if (config.attention_sinks || tensors.Contains(sinks.name)) {
    FT_ASSIGN_OR_RETURN(block.sinks, tensors.Vector(sinks));
  }
  FT_ASSIGN_OR_RETURN(block.o, tensors.Matrix({matrix("self_attn.o_proj", hidden, q_size)}));
  const WeightName o_bias{absl::StrCat(prefix, "self_attn.o_proj.bias"), Shape(hidden)};
  if (config.attention_output_bias || tensors.Contains(o_bias.name)) {
    FT_ASSIGN_OR_RETURN(block.o_bias, tensors.Vector(o_bias));
  }
  FT_ASSIGN_OR_RETURN(block.mlp_norm, tensors.Vector(norm("post_attention_layernorm", hidden)));
  FT_ASSIGN_OR_RETURN(block.gate_up,
                      tensors.Matrix({matrix("mlp.gate_proj", ffn, hidden), matrix("mlp.up_proj", ffn, hidden)}));
  FT_ASSIGN_OR_RETURN(block.down, tensors.Matrix({matrix("mlp.down_proj", hidden, ffn)}));
  return block;
}

}  // namespace foretoken::proposer
