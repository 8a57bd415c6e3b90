// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/transformer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "common/base/status_macros.h"
#include "common/model/config/rope.h"
#include "common/quantization/find_weight.h"
#include "common/weights/checkpoint.h"
#include "kernels/dtype.h"
#include "tests/reference/ops.h"

namespace foretoken::reference {
namespace {

double RoundToBf16(double value) { return kernels::FloatFromBf16(kernels::Bf16FromFloat(static_cast<float>(value))); }

std::vector<double> ToDoubles(const quantization::FoundWeight& weight, const kernels::Shape& shape) {
  if (weight.stored != nullptr) {
    std::vector<float> values(static_cast<size_t>(shape.num_elements()));
    weight.stored->ReadValues(0, shape[0], values.data());
    return {values.begin(), values.end()};
  }
  const kernels::ConstTensorView& view = weight.floats;
  std::vector<double> values(static_cast<size_t>(view.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (view.dtype) {
      case kernels::DType::kF32:
        values[i] = view.as<float>()[i];
        break;
      case kernels::DType::kF16:
        values[i] = kernels::FloatFromF16(view.as<uint16_t>()[i]);
        break;
      case kernels::DType::kBF16:
        values[i] = kernels::FloatFromBf16(view.as<uint16_t>()[i]);
        break;
      case kernels::DType::kI32:
        values[i] = view.as<int32_t>()[i];
        break;
    }
  }
  return values;
}

double Dot(std::span<const double> x, std::span<const double> y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

std::vector<double> Softmax(std::vector<double> values) {
  const double max = *std::ranges::max_element(values);
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - max);
  for (double& value : values) value /= sum;
  return values;
}

void AddTo(std::vector<std::vector<double>>& x, const std::vector<std::vector<double>>& y) {
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
  }
}

}  // namespace

absl::StatusOr<Transformer> Transformer::Load(const std::string& directory, Rounding rounding) {
  FT_ASSIGN_OR_RETURN(model::ModelConfig config, model::LoadModelConfig(directory));
  FT_ASSIGN_OR_RETURN(const weights::Checkpoint checkpoint, weights::Checkpoint::Open(directory));
  Transformer transformer(std::move(config), rounding);
  for (const model::WeightName& weight : model::ListWeights(transformer.names_)) {
    FT_ASSIGN_OR_RETURN(
        const quantization::FoundWeight found,
        quantization::FindWeight(checkpoint, weight.name, weight.shape, transformer.config_.quantization));
    std::vector<double> values = ToDoubles(found, weight.shape);
    if (weight.shape.rank == 2)
      std::ranges::transform(values, values.begin(), [&](double v) { return transformer.Rounded(v); });
    transformer.weights_.emplace(weight.name, std::move(values));
  }
  return transformer;
}

Transformer Transformer::With(model::ModelConfig config) const {
  Transformer other = *this;
  other.config_ = std::move(config);
  return other;
}

Transformer Transformer::WithoutTheBestExpert() const {
  Transformer other = *this;
  other.first_expert_ = 1;
  return other;
}

double Transformer::Rounded(double value) const { return rounding_ == Rounding::kBf16 ? RoundToBf16(value) : value; }

Transformer::Row Transformer::Normed(const Row& x, std::span<const double> weight) const {
  double sum_of_squares = 0;
  for (const double value : x) sum_of_squares += value * value;
  const double scale = 1 / std::sqrt(sum_of_squares / static_cast<double>(x.size()) + config_.rms_norm_eps);
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * (config_.norm_offset + weight[i]);
  return out;
}

Transformer::Rows Transformer::MatMul(const Rows& x, const model::WeightName& weight) const {
  const auto num_outputs = static_cast<size_t>(weight.shape[0]);
  const auto num_inputs = static_cast<size_t>(weight.shape[1]);
  const auto matrix = std::span<const double>(Values(weight)).subspan(weight.first_row * num_inputs);
  Rows out(x.size(), Row(num_outputs));
  for (size_t t = 0; t < x.size(); ++t) {
    Row row = x[t];
    for (double& value : row) value = Rounded(value);
    for (size_t n = 0; n < num_outputs; ++n) out[t][n] = Dot(row, matrix.subspan(n * num_inputs, num_inputs));
  }
  return out;
}

Transformer::Rows Transformer::Project(const Rows& x, const model::WeightName& weight,
                                       const std::optional<model::WeightName>& bias) const {
  Rows out = MatMul(x, weight);
  if (bias) AddTo(out, Rows(x.size(), Values(*bias)));
  return out;
}

void Transformer::NormAndRotateHeads(Rows& x, const std::optional<model::WeightName>& gain, size_t layer) const {
  if (gain && config_.whole_qk_norm) x = AllNormed(x, *gain);
  const auto head_dim = static_cast<size_t>(config_.head_dim);
  const auto turned = static_cast<size_t>(config_.turned_dims(static_cast<int64_t>(layer)));
  const bool is_sliding = config_.sliding_rope && config_.sliding_windows[layer];
  const model::RopeFrequencies frequencies =
      model::ComputeRopeFrequencies(is_sliding ? *config_.sliding_rope : config_.rope,
                                    config_.rotary_dim.value_or(config_.head_dim), config_.max_position_embeddings);
  for (size_t position = 0; position < x.size(); ++position) {
    for (size_t begin = 0; begin < x[position].size(); begin += head_dim) {
      Row head(x[position].begin() + begin, x[position].begin() + begin + head_dim);
      if (gain && !config_.whole_qk_norm) head = Normed(head, Values(*gain));
      std::ranges::copy(head, x[position].begin() + begin);
      for (size_t i = 0; i < turned / 2; ++i) {
        const double angle = static_cast<double>(position) * frequencies.inverse[i];
        const double cos = frequencies.attention_factor * std::cos(angle);
        const double sin = frequencies.attention_factor * std::sin(angle);
        const double first = head[i];
        const double second = head[i + turned / 2];
        x[position][begin + i] = first * cos - second * sin;
        x[position][begin + i + turned / 2] = second * cos + first * sin;
      }
    }
  }
}

Transformer::Rows Transformer::Attention(const Rows& x, size_t layer) const {
  const model::LayerWeightNames& names = names_.layers[layer];
  Rows q = Project(x, names.q, names.q_bias);
  Rows k = Project(x, names.k, names.k_bias);
  Rows v = Project(x, names.v, names.v_bias);
  NormAndRotateHeads(q, names.q_norm, layer);
  NormAndRotateHeads(k, names.k_norm, layer);
  for (Rows* stored : {&k, &v}) {
    for (Row& row : *stored) std::ranges::transform(row, row.begin(), [&](double value) { return Rounded(value); });
  }

  const auto head_dim = static_cast<size_t>(config_.head_dim);
  const auto num_heads = static_cast<size_t>(config_.num_heads);
  const auto num_heads_per_kv_head = num_heads / static_cast<size_t>(config_.num_kv_heads);
  Rows out(x.size(), Row(num_heads * head_dim));
  for (size_t row = 0; row < x.size(); ++row) {
    const size_t num_seen = row + 1;
    const auto window = static_cast<size_t>(config_.sliding_windows[layer].value_or(static_cast<int64_t>(num_seen)));
    const size_t first_seen = num_seen - std::min(window, num_seen);
    for (size_t head = 0; head < num_heads; ++head) {
      const size_t q_begin = head * head_dim;
      const size_t kv_begin = head / num_heads_per_kv_head * head_dim;
      const auto head_of = [&](const Row& values, size_t begin) { return std::span(values).subspan(begin, head_dim); };
      Row scores;
      for (size_t seen = first_seen; seen < num_seen; ++seen) {
        const double dot = Dot(head_of(q[row], q_begin), head_of(k[seen], kv_begin));
        const double score = dot * config_.attention_scale.value_or(1 / std::sqrt(static_cast<double>(head_dim)));
        scores.push_back(Capped(score, config_.attention_cap));
      }
      if (config_.attention_sinks) scores.push_back(Values(*names.sinks)[head]);
      const Row weights = Softmax(scores);
      for (size_t seen = first_seen; seen < num_seen; ++seen) {
        const double weight = weights[seen - first_seen];
        for (size_t i = 0; i < head_dim; ++i) out[row][q_begin + i] += weight * v[seen][kv_begin + i];
      }
    }
  }
  return Project(out, names.o, names.o_bias);
}

Transformer::Row Transformer::GatedRow(const Row& gate_up) const {
  const size_t size = gate_up.size() / 2;
  const bool takes_turns = config_.gating.is_interleaved;
  Row out(size);
  for (size_t i = 0; i < size; ++i) {
    out[i] = Gated(config_.gating, gate_up[takes_turns ? 2 * i : i], gate_up[takes_turns ? 2 * i + 1 : size + i]);
  }
  return out;
}

Transformer::Rows Transformer::Mlp(const Rows& x, const model::LayerWeightNames& layer) const {
  Rows out = layer.router ? Experts(x, layer) : Rows(x.size(), Row(x[0].size()));
  if (layer.gate.name.empty()) return out;
  Rows gate = Project(x, layer.gate, layer.gate_bias);
  const Rows up = Project(x, layer.up, layer.up_bias);
  for (size_t t = 0; t < x.size(); ++t) {
    gate[t].insert(gate[t].end(), up[t].begin(), up[t].end());
    gate[t] = GatedRow(gate[t]);
  }
  AddTo(out, Project(gate, layer.down, layer.down_bias));
  return out;
}

Transformer::Rows Transformer::Experts(const Rows& x, const model::LayerWeightNames& layer) const {
  const model::ExpertsConfig& experts = config_.experts;
  const bool is_sigmoid = experts.weighting == kernels::ExpertWeighting::kSigmoid ||
                          experts.weighting == kernels::ExpertWeighting::kSigmoidOverChosen;
  const Rows scores = Project(x, *layer.router, layer.router_bias);
  Rows out(x.size(), Row(x[0].size()));
  for (size_t t = 0; t < x.size(); ++t) {
    Row weights, values;
    for (const double score : scores[t]) weights.push_back(is_sigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score));
    for (size_t i = 0; i < weights.size(); ++i) {
      values.push_back(weights[i] + (layer.choice_bias ? Values(*layer.choice_bias)[i] : 0));
    }
    std::vector<size_t> chosen(weights.size());
    std::iota(chosen.begin(), chosen.end(), 0);
    std::ranges::stable_sort(chosen, std::greater<>(), [&](size_t expert) { return values[expert]; });
    chosen.erase(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(first_expert_));
    chosen.resize(experts.num_chosen);
    double divisor = 0;
    if (experts.weighting == kernels::ExpertWeighting::kSigmoid) {
      divisor = 1;
    } else if (experts.weighting == kernels::ExpertWeighting::kSoftmaxOverAll) {
      for (const double weight : weights) divisor += weight;
    } else {
      for (const size_t expert : chosen) divisor += weights[expert];
    }
    for (const size_t expert : chosen) {
      const model::ExpertWeightNames& names = layer.experts[expert];
      Row gate_up;
      for (size_t i = 0; i < names.gate_up.size(); ++i) {
        const auto bias = names.gate_up_bias.empty() ? std::nullopt : std::optional(names.gate_up_bias[i]);
        const Row values = Project({x[t]}, names.gate_up[i], bias)[0];
        gate_up.insert(gate_up.end(), values.begin(), values.end());
      }
      const Rows y = Project({GatedRow(gate_up)}, names.down, names.down_bias);
      for (size_t i = 0; i < y[0].size(); ++i) out[t][i] += experts.scale * weights[expert] / divisor * y[0][i];
    }
  }
  return out;
}

Transformer::Rows Transformer::AllNormed(const Rows& x, const std::optional<model::WeightName>& weight) const {
  if (!weight) return x;
  Rows out;
  for (const Row& row : x) out.push_back(Normed(row, Values(*weight)));
  return out;
}

void Transformer::AddToResidual(Rows& x, Rows part, const std::optional<model::WeightName>& post_norm) const {
  part = AllNormed(part, post_norm);
  for (Row& row : part) {
    for (double& value : row) value *= config_.residual_multiplier;
  }
  AddTo(x, part);
}

std::vector<Transformer::Rows> Transformer::HiddenStates(std::span<const int64_t> token_ids) const {
  Rows x;
  for (const int64_t id : token_ids) {
    const auto row = Values(names_.embed).begin() + id * config_.hidden_size;
    x.emplace_back(row, row + config_.hidden_size);
    for (double& value : x.back()) value *= config_.embedding_multiplier;
  }
  std::vector<Rows> states = {x};
  for (size_t i = 0; i < names_.layers.size(); ++i) {
    const model::LayerWeightNames& layer = names_.layers[i];
    AddToResidual(x, Attention(AllNormed(x, layer.input_norm), i), layer.attention_post_norm);
    AddToResidual(x, Mlp(AllNormed(x, layer.mlp_norm), layer), layer.mlp_post_norm);
    states.push_back(x);
  }
  return states;
}

Transformer::Rows Transformer::FinalNorm(const Rows& x) const { return AllNormed(x, names_.final_norm); }

std::vector<std::vector<double>> Transformer::Logits(std::span<const int64_t> token_ids,
                                                     std::span<const size_t> positions) const {
  const Rows last = HiddenStates(token_ids).back();
  Rows wanted;
  for (const size_t position : positions) wanted.push_back(last[position]);
  Rows logits = MatMul(FinalNorm(wanted), names_.head);
  for (Row& row : logits) {
    for (double& logit : row) logit = Capped(logit * config_.logit_multiplier, config_.logit_cap);
  }
  return logits;
}

}  // namespace foretoken::reference
