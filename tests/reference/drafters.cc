// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/drafters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/weights/safetensors.h"
#include "kernels/dtype.h"

namespace foretoken::reference {
namespace {

// weight [N, K] times x [K].
Vector Times(const Vector& weight, const Vector& x) {
  Vector out(weight.size() / x.size());
  for (size_t n = 0; n < out.size(); ++n) {
    for (size_t k = 0; k < x.size(); ++k) out[n] += weight[n * x.size() + k] * x[k];
  }
  return out;
}

Vector Normed(const Vector& x, const Vector& gain, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  Vector out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + eps) * gain[i];
  }
  return out;
}

Vector Sum(Vector x, const Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  return x;
}

Vector Joined(Vector x, const Vector& y) {
  x.insert(x.end(), y.begin(), y.end());
  return x;
}

Vector Slice(const Vector& x, int64_t begin, int64_t size) { return {x.begin() + begin, x.begin() + begin + size}; }

double Element(const weights::StoredTensor& tensor, size_t i) {
  const std::byte* const bytes = tensor.bytes.data();
  const auto read = [&]<typename T>(T value) {
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    return value;
  };
  if (tensor.dtype == "BF16") return kernels::FloatFromBf16(read(uint16_t{}));
  if (tensor.dtype == "F16") return kernels::FloatFromF16(read(uint16_t{}));
  if (tensor.dtype == "F32") return read(float{});
  if (tensor.dtype == "I64") return static_cast<double>(read(int64_t{}));
  return read(uint8_t{});
}

// One head's values, rotated to a position. Pairs are (i, i + D/2).
Vector Rotated(const Vector& head, int64_t position, double theta) {
  const size_t half = head.size() / 2;
  Vector out(head.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    out[i] = head[i] * std::cos(angle) - head[i + half] * std::sin(angle);
    out[i + half] = head[i + half] * std::cos(angle) + head[i] * std::sin(angle);
  }
  return out;
}

// What one head sees: the weighted mean of values by softmax of scaled products.
Vector Attended(const Vector& q, const std::vector<Vector>& keys, const std::vector<Vector>& values,
                const std::optional<double>& sink = std::nullopt) {
  Vector scores;
  for (const Vector& key : keys) {
    double dot = 0;
    for (size_t i = 0; i < q.size(); ++i) dot += q[i] * key[i];
    scores.push_back(dot / std::sqrt(static_cast<double>(q.size())));
  }
  const double max = *std::ranges::max_element(scores);
  double total = sink.has_value() ? std::exp(*sink - max) : 0;
  for (double& score : scores) total += score = std::exp(score - max);
  Vector out(q.size());
  for (size_t j = 0; j < keys.size(); ++j) {
    for (size_t i = 0; i < q.size(); ++i) out[i] += scores[j] / total * values[j][i];
  }
  return out;
}

}  // namespace

Vector Doubles(const std::vector<uint16_t>& bits) {
  Vector values;
  for (const uint16_t element : bits) values.push_back(kernels::FloatFromBf16(element));
  return values;
}

Tensors ReadTensors(const std::string& path) {
  const weights::SafetensorsFile file = weights::SafetensorsFile::Open(path).value();
  Tensors tensors;
  for (const auto& [name, stored] : file.tensors()) {
    size_t count = 1;
    for (const int64_t dim : stored.shape) count *= static_cast<size_t>(dim);
    Vector& values = tensors[name];
    for (size_t i = 0; i < count; ++i) values.push_back(Element(stored, i));
  }
  return tensors;
}

Eagle::Eagle(const EagleShape& shape, Tensors tensors, Vector embedding, Vector head)
    : shape_(shape), tensors_(std::move(tensors)), embedding_(std::move(embedding)), head_(std::move(head)) {
  if (tensors_.contains("lm_head.weight")) head_ = Of("lm_head.weight");
  if (tensors_.contains("embed_tokens.weight")) embedding_ = Of("embed_tokens.weight");
}

Vector Eagle::Feature(const Vector& hidden_states) const {
  Vector x = hidden_states;
  if (tensors_.contains("input_norm.weight")) x = Normed(x, Of("input_norm.weight"), shape_.eps);
  if (tensors_.contains("fc_norm.0.weight")) {
    Vector parts;
    for (int64_t a = 0; tensors_.contains("fc_norm." + std::to_string(a) + ".weight"); ++a) {
      const Vector& gain = Of("fc_norm." + std::to_string(a) + ".weight");
      const auto size = static_cast<int64_t>(gain.size());
      parts = Joined(std::move(parts), Normed(Slice(x, a * size, size), gain, shape_.eps));
    }
    x = parts;
  }
  return Times(Of("fc.weight"), x);
}

std::vector<DraftedRow> Eagle::Run(std::span<const DraftInput> rows) const {
  const std::string block = shape_.block;
  const int64_t D = shape_.head_dim, H = shape_.num_heads, K = shape_.num_kv_heads;
  std::vector<std::vector<Vector>> keys(K), values(K);  // [K][T, D]
  std::vector<DraftedRow> drafted;
  for (size_t row = 0; row < rows.size(); ++row) {
    const Vector g = rows[row].feature.has_value() ? *rows[row].feature : drafted.back().output;
    const Vector embedded = Slice(embedding_, rows[row].token_id * shape_.hidden_size, shape_.hidden_size);
    Vector input, residual;
    if (shape_.is_third) {
      const Vector u = Normed(g, Of(block + "hidden_norm.weight"), shape_.eps);
      input = Joined(Normed(embedded, Of(block + "input_layernorm.weight"), shape_.eps), u);
      residual = shape_.norm_before_residual ? u : g;
    } else {
      const auto normed = [&](const std::string& norm, const Vector& x) {
        return tensors_.contains(norm) ? Normed(x, Of(norm), shape_.eps) : x;
      };
      residual = Times(Of("fc.weight"), Joined(normed("embed_layernorm.weight", embedded), g));
      if (tensors_.contains("fc.bias")) residual = Sum(residual, Of("fc.bias"));
      input = normed(block + "input_layernorm.weight", residual);
    }
    const auto project = [&](const std::string& role, int64_t head, bool is_rotated) {
      Vector x = Slice(Times(Of(block + "self_attn." + role + "_proj.weight"), input), head * D, D);
      const std::string norm = block + "self_attn." + role + "_norm.weight";
      if (tensors_.contains(norm)) x = Normed(x, Of(norm), shape_.eps);
      return is_rotated ? Rotated(x, static_cast<int64_t>(row), shape_.rope_theta) : x;
    };
    for (int64_t head = 0; head < K; ++head) {
      keys[head].push_back(project("k", head, true));
      values[head].push_back(project("v", head, false));
    }
    Vector attended;
    for (int64_t head = 0; head < H; ++head) {
      const int64_t kv_head = head * K / H;
      attended = Joined(std::move(attended), Attended(project("q", head, true), keys[kv_head], values[kv_head]));
    }
    const Vector x = Sum(residual, Times(Of(block + "self_attn.o_proj.weight"), attended));
    const Vector m = Normed(x, Of(block + "post_attention_layernorm.weight"), shape_.eps);
    Vector gate = Times(Of(block + "mlp.gate_proj.weight"), m);
    const Vector up = Times(Of(block + "mlp.up_proj.weight"), m);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    const Vector y = Sum(x, Times(Of(block + "mlp.down_proj.weight"), gate));
    const std::string last_norm = shape_.is_third ? "norm.weight" : "lm_head_layernorm.weight";
    const Vector z = tensors_.contains(last_norm) ? Normed(y, Of(last_norm), shape_.eps) : y;
    Vector logits = Times(head_, z);
    for (double& logit : logits) logit *= shape_.logit_scale;
    drafted.push_back({.logits = std::move(logits), .output = shape_.norm_output ? z : y});
  }
  return drafted;
}

std::vector<Vector> RunDflash(const DflashShape& shape, const Tensors& tensors, const Vector& embedding,
                              std::span<const Vector> features, std::span<const int64_t> token_ids) {
  const int64_t D = shape.head_dim;
  const size_t num_context = features.size(), num_rows = token_ids.size();
  std::vector<Vector> context, x;
  for (const Vector& feature : features) {
    context.push_back(Normed(feature, tensors.at("hidden_norm.weight"), shape.eps));
  }
  for (const int64_t id : token_ids) x.push_back(Slice(embedding, id * shape.hidden_size, shape.hidden_size));
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    const std::string block = "layers." + std::to_string(layer) + ".";
    const auto project = [&](const std::string& role, const Vector& input, int64_t head, size_t position) {
      const Vector all = Times(tensors.at(block + "self_attn." + role + "_proj.weight"), input);
      const Vector one = Slice(all, head * D, D);
      if (role == "v") return one;
      return Rotated(Normed(one, tensors.at(block + "self_attn." + role + "_norm.weight"), shape.eps),
                     static_cast<int64_t>(position), shape.rope_theta);
    };
    std::vector<Vector> inputs;
    for (const Vector& row : x) inputs.push_back(Normed(row, tensors.at(block + "input_layernorm.weight"), shape.eps));
    for (size_t row = 0; row < num_rows; ++row) {
      Vector attended;
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        const int64_t kv_head = head * shape.num_kv_heads / shape.num_heads;
        std::vector<Vector> keys, values;
        const auto counted_to = static_cast<int64_t>(shape.windows_from_context ? num_context : num_context + row + 1);
        const auto of_layer = shape.windows.empty() ? std::nullopt : shape.windows[static_cast<size_t>(layer)];
        const int64_t first_seen = counted_to - of_layer.value_or(counted_to);
        const auto is_hidden = [&](size_t position) { return static_cast<int64_t>(position) < first_seen; };
        for (size_t i = 0; i < num_context; ++i) {
          if (is_hidden(i)) continue;
          keys.push_back(project("k", context[i], kv_head, i));
          values.push_back(project("v", context[i], kv_head, i));
        }
        for (size_t j = 0; j < (shape.is_causal[static_cast<size_t>(layer)] ? row + 1 : num_rows); ++j) {
          if (is_hidden(num_context + j)) continue;
          keys.push_back(project("k", inputs[j], kv_head, num_context + j));
          values.push_back(project("v", inputs[j], kv_head, num_context + j));
        }
        const Vector q = project("q", inputs[row], head, num_context + row);
        const auto sinks = tensors.find(block + "self_attn.attention_sink_bias");
        const std::optional<double> sink =
            sinks == tensors.end() ? std::nullopt : std::optional(sinks->second[static_cast<size_t>(head)]);
        attended = Joined(std::move(attended), Attended(q, keys, values, sink));
      }
      x[row] = Sum(x[row], Times(tensors.at(block + "self_attn.o_proj.weight"), attended));
    }
    for (Vector& row : x) {
      const Vector m = Normed(row, tensors.at(block + "post_attention_layernorm.weight"), shape.eps);
      Vector gate = Times(tensors.at(block + "mlp.gate_proj.weight"), m);
      const Vector up = Times(tensors.at(block + "mlp.up_proj.weight"), m);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      row = Sum(row, Times(tensors.at(block + "mlp.down_proj.weight"), gate));
    }
  }
  for (Vector& row : x) row = Normed(row, tensors.at("norm.weight"), shape.eps);
  return x;
}

Vector DflashLogits(const Tensors& tensors, const Vector& head, const Vector& output, int64_t token_id, Vector& state) {
  const Vector logits = Times(head, output);
  const auto by_token = tensors.find("markov_head.markov_w1.weight");
  if (by_token == tensors.end()) return logits;
  const Vector& to_logits = tensors.at("markov_head.markov_w2.weight");
  const size_t rank = to_logits.size() / logits.size();
  Vector w = Slice(by_token->second, token_id * static_cast<int64_t>(rank), static_cast<int64_t>(rank));
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  if (tensors.contains("markov_head.gate_proj.weight")) {
    const Vector gate = Sum(Times(tensors.at("markov_head.gate_proj.weight"), Joined(output, w)),
                            tensors.at("markov_head.gate_proj.bias"));
    for (size_t i = 0; i < rank; ++i) w[i] *= sigmoid(gate[i]);
  } else if (tensors.contains("markov_head.joint_proj.weight")) {
    state.resize(rank);
    const Vector joint = Sum(Times(tensors.at("markov_head.joint_proj.weight"), Joined(Joined(state, w), output)),
                             tensors.at("markov_head.joint_proj.bias"));
    for (size_t i = 0; i < rank; ++i) {
      state[i] = sigmoid(joint[i]) * state[i] + (1 - sigmoid(joint[i])) * std::tanh(joint[rank + i]);
      w[i] = std::tanh(joint[2 * rank + i]);
    }
  }
  return Sum(logits, Times(to_logits, w));
}

double DsparkConfidence(const Tensors& tensors, const Vector& output, int64_t token_id) {
  const Vector& weight = tensors.at("confidence_head.proj.weight");
  const auto rank = static_cast<int64_t>(weight.size() - output.size());
  Vector input = output;
  if (rank > 0) input = Joined(input, Slice(tensors.at("markov_head.markov_w1.weight"), token_id * rank, rank));
  return 1 / (1 + std::exp(-Times(weight, input)[0] - tensors.at("confidence_head.proj.bias")[0]));
}

std::vector<DraftedRow> RunMlpSpeculator(const MlpShape& shape, const Tensors& tensors, const Vector& feature,
                                         std::span<const int64_t> token_ids) {
  constexpr double kEps = 1e-6;
  const Vector ones(std::max(shape.emb_dim, shape.inner_dim), 1);
  const double sw = std::pow(0.5, 0.5 / static_cast<double>(shape.n_predict));
  const double ew = std::sqrt((1 - sw * sw) * static_cast<double>(shape.inner_dim) / 2);
  Vector s = feature;
  if (shape.scales_input) {
    s = Normed(s, ones, kEps);
    for (double& value : s) value /= std::sqrt(2.0);
  }
  std::vector<DraftedRow> rows;
  for (size_t i = 0; i < token_ids.size(); ++i) {
    const std::string index = std::to_string(shape.is_tied ? 0 : i);
    const std::string projection = std::to_string(shape.is_tied ? std::min<size_t>(i, 1) : i);
    const Vector z = Slice(tensors.at("emb." + index + ".weight"), token_ids[i] * shape.inner_dim, shape.inner_dim);
    s = Times(tensors.at("proj." + projection + ".weight"), s);
    for (size_t j = 0; j < s.size(); ++j) s[j] = s[j] * sw + z[j] * ew;
    // The definition divides by sw and not the sum; the norm takes either out.
    s = Normed(s, tensors.at("ln." + index + ".weight"), kEps * sw * sw);
    s = Sum(s, tensors.at("ln." + index + ".bias"));
    for (double& value : s) value = value * (1 + std::erf(value / std::sqrt(2.0))) / 2;
    rows.push_back({.logits = Times(tensors.at("head." + index + ".weight"), s), .output = s});
  }
  return rows;
}

Vector RunMedusaHead(const Tensors& tensors, int64_t head, int64_t num_layers, const Vector& lm_head, Vector x) {
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const std::string prefix = "blocks." + std::to_string(head) + ".layers." + std::to_string(layer);
    Vector branch = Times(tensors.at(prefix + ".weight"), x);
    if (tensors.contains(prefix + ".bias")) branch = Sum(std::move(branch), tensors.at(prefix + ".bias"));
    for (size_t i = 0; i < x.size(); ++i) x[i] += branch[i] / (1 + std::exp(-branch[i]));
  }
  return Times(lm_head, x);
}

}  // namespace foretoken::reference
