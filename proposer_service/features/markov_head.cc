// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/markov_head.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/dtype.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using kernels::TensorView;
using model::WeightName;
using tensor::Tensor;

constexpr char kByToken[] = "markov_head.markov_w1.weight", kToLogits[] = "markov_head.markov_w2.weight";
constexpr char kConfidence[] = "confidence_head.proj.weight";
constexpr int64_t kMaxRank = 65'536;

// Each type with the name that config.json gives it, and the matrix that only it has.
struct TypeName {
  MarkovType type;
  std::string name;
  std::string matrix;
};
const TypeName kTypes[] = {{MarkovType::kVanilla, "vanilla", ""},
                           {MarkovType::kGated, "gated", "markov_head.gate_proj"},
                           {MarkovType::kRecurrent, "rnn", "markov_head.joint_proj"}};

const TypeName& Describe(MarkovType type) { return kTypes[static_cast<size_t>(type)]; }

MarkovType TypeByTensors(const DrafterTensors& tensors) {
  for (const TypeName& known : kTypes) {
    if (tensors.Contains(known.matrix + ".weight")) return known.type;
  }
  return MarkovType::kVanilla;
}

// Outputs and inputs of G or J.
Shape GateShape(const MarkovForm& form) {
  const int64_t r = form.rank, E = form.hidden_size;
  return form.type == MarkovType::kGated ? Shape(r, E + r) : Shape(3 * r, 2 * r + E);
}

}  // namespace

int64_t MarkovForm::state_bytes() const {
  return type == MarkovType::kRecurrent ? rank * static_cast<int64_t>(sizeof(uint16_t)) : 0;
}

absl::StatusOr<MarkovForm> ResolveMarkovForm(const model::JsonFields& config, const std::optional<int64_t>& rank,
                                             const std::optional<std::string>& type, const DrafterTensors& tensors) {
  if (rank.has_value() && (*rank < 0 || *rank > kMaxRank)) {
    return config.Error("markov_rank", "expects 0 to ", kMaxRank, ", got ", *rank);
  }
  MarkovForm form{.type = TypeByTensors(tensors), .rank = rank.value_or(0)};
  if (type.has_value()) {
    const auto* const known = std::ranges::find(kTypes, *type, &TypeName::name);
    if (known == std::end(kTypes))
      return config.Error("markov_head_type", "expects vanilla, gated or rnn, got ", *type);
    form.type = known->type;
  }
  if (!rank.has_value() && tensors.Contains(kByToken)) {
    FT_ASSIGN_OR_RETURN(const Shape shape, tensors.ShapeOf(kByToken, 2));
    if (shape[1] < 1 || shape[1] > kMaxRank) {  // a tensor without rows has no bytes, however many columns it states
      return absl::InvalidArgumentError(absl::StrCat(tensors.directory(), ": tensor ", kByToken, ": expected 1 to ",
                                                     kMaxRank, " columns, got [", shape[0], ", ", shape[1], "]"));
    }
    form.rank = shape[1];
  }
  return form;
}

absl::StatusOr<MarkovHead::Weights> LoadMarkovHead(const MarkovForm& form, const DrafterTensors& tensors) {
  MarkovHead::Weights weights;
  if (form.rank > 0) {
    FT_ASSIGN_OR_RETURN(weights.by_token, tensors.VocabularyMatrix({kByToken, Shape(form.vocab_size, form.rank)}));
    FT_ASSIGN_OR_RETURN(weights.to_logits,
                        tensors.VocabularyMatrix({kToLogits, Shape(form.draft_vocab_size, form.rank)}));
  }
  if (form.rank > 0 && form.type != MarkovType::kVanilla) {
    const std::string& name = Describe(form.type).matrix;
    const Shape shape = GateShape(form);
    FT_ASSIGN_OR_RETURN(weights.gates, tensors.Matrix({{name + ".weight", shape}}));
    FT_ASSIGN_OR_RETURN(weights.gate_bias, tensors.Vector(WeightName{name + ".bias", Shape(shape[0])}));
  }
  if (!tensors.Contains(kConfidence)) return weights;
  FT_ASSIGN_OR_RETURN(const Shape shape, tensors.ShapeOf(kConfidence, 2));
  const int64_t width = shape[1] == form.hidden_size ? shape[1] : form.hidden_size + form.rank;
  FT_ASSIGN_OR_RETURN(weights.confidence, tensors.Floats({kConfidence, Shape(1, width)}));
  FT_ASSIGN_OR_RETURN(const std::vector<float> bias, tensors.Floats({"confidence_head.proj.bias", Shape(1)}));
  weights.confidence_bias = bias[0];
  return weights;
}

bool MarkovHead::HasConfidence(const DrafterTensors& tensors) { return tensors.Contains(kConfidence); }

MarkovHead::MarkovHead(const MarkovForm& form, Weights weights, kernels::Backend& backend,
                       const DraftModel::Limits& limits)
    : backend_(backend), form_(form), weights_(std::move(weights)) {
  if (form.rank == 0) return;
  const auto matrix = [&](DType dtype, int64_t cols) { return Tensor(backend, dtype, Shape(limits.max_rows, cols)); };
  embedded_ = matrix(DType::kF32, form.rank);
  narrow_ = matrix(DType::kBF16, form.rank);
  if (form.type == MarkovType::kVanilla) return;
  inputs_ = matrix(DType::kBF16, GateShape(form)[1]);
  gates_ = matrix(DType::kF32, GateShape(form)[0]);
  gated_ = matrix(DType::kBF16, form.rank);
  if (form.type == MarkovType::kGated) {
    gate_pairs_ = matrix(DType::kF32, 2 * form.rank);
    return;
  }
  root_state_ = limits.num_blocks * kernels::kKvBlockSize;
  states_ = std::make_unique<SlotOutputs>(
      backend, SlotOutputs::Sizes{.num_slots = root_state_ + 1, .width = form.rank, .max_rows = limits.max_rows});
  lists_ = std::make_unique<DeviceLists>(backend, 1, limits.max_rows);
  state_ = matrix(DType::kF32, form.rank);
}

std::optional<DraftHead::Term> MarkovHead::Term(const TreeRows& rows) {
  num_rows_ = rows.outputs.shape[0];
  const auto keep = [&](const ConstTensorView& from, std::vector<uint16_t>& to) {
    if (weights_.confidence.empty()) return;
    to.resize(static_cast<size_t>(from.shape.num_elements()));
    backend_.Copy(to.data(), from.data, to.size() * sizeof(uint16_t), kernels::CopyKind::kToHost);
  };
  keep(rows.outputs, outputs_);
  if (form_.rank == 0) return std::nullopt;
  const TensorView embedded = embedded_.rows(num_rows_), narrow = narrow_.rows(num_rows_);
  backend_.Embed({.weight = weights_.by_token.get(), .token_ids = rows.token_ids, .out = embedded});
  backend_.CopyRows({.x = embedded, .num_rows = static_cast<int32_t>(num_rows_), .out = narrow});
  keep(narrow, by_token_);
  DraftHead::Term term{.x = narrow, .weight = weights_.to_logits.get()};
  if (form_.type == MarkovType::kGated) term.x = Gate(rows.outputs, embedded);
  if (form_.type == MarkovType::kRecurrent) term.x = Step(rows, embedded);
  return term;
}

TensorView MarkovHead::Gate(const ConstTensorView& outputs, const TensorView& by_token) {
  const auto n = static_cast<int32_t>(num_rows_);
  const TensorView inputs = inputs_.rows(n), gates = gates_.rows(n), pairs = gate_pairs_.rows(n);
  backend_.CopyRows({.x = outputs, .num_rows = n, .out = inputs});
  backend_.CopyRows({.x = by_token, .num_rows = n, .out = inputs, .first_column = form_.hidden_size});
  backend_.MatMul({.x = inputs, .weight = weights_.gates.get(), .bias = weights_.gate_bias.f32(), .out = gates});
  backend_.CopyRows({.x = gates, .num_rows = n, .out = pairs});
  backend_.CopyRows({.x = by_token, .num_rows = n, .out = pairs, .first_column = form_.rank});
  backend_.Glu({.gate_up = pairs, .gating = {.activation = kernels::Activation::kSigmoid}, .out = gated_.rows(n)});
  return gated_.rows(n);
}

TensorView MarkovHead::Step(const TreeRows& rows, const TensorView& by_token) {
  const auto n = static_cast<int32_t>(num_rows_);
  const TensorView inputs = inputs_.rows(n), gates = gates_.rows(n), state = state_.rows(n);
  std::vector<int32_t> from(rows.parent_slots.begin(), rows.parent_slots.end());
  for (int32_t& slot : from) slot = slot < 0 ? root_state_ : slot;
  states_->Gather(from, state);
  backend_.CopyRows({.x = state, .num_rows = n, .out = inputs});
  backend_.CopyRows({.x = by_token, .num_rows = n, .out = inputs, .first_column = form_.rank});
  backend_.CopyRows({.x = rows.outputs, .num_rows = n, .out = inputs, .first_column = 2 * form_.rank});
  backend_.MatMul({.x = inputs, .weight = weights_.gates.get(), .bias = weights_.gate_bias.f32(), .out = gates});
  backend_.RecurrentCell({.gates = gates, .state = state, .out = gated_.rows(n)});
  states_->Store(state, lists_->Upload(rows.slots, 0));
  return gated_.rows(n);
}

void MarkovHead::Move(std::span<const kernels::KvMove> moves) {
  if (states_ != nullptr) states_->Move(moves);
}

std::vector<float> MarkovHead::Confidences() const {
  std::vector<float> confidences;
  if (weights_.confidence.empty() || num_rows_ == 0) return confidences;
  const size_t width = outputs_.size() / static_cast<size_t>(num_rows_);
  const size_t rank = by_token_.size() / static_cast<size_t>(num_rows_);
  for (size_t row = 0; row < static_cast<size_t>(num_rows_); ++row) {
    float sum = weights_.confidence_bias;
    for (size_t i = 0; i < weights_.confidence.size(); ++i) {
      const uint16_t value = i < width ? outputs_[row * width + i] : by_token_[row * rank + i - width];
      sum += weights_.confidence[i] * kernels::FloatFromBf16(value);
    }
    confidences.push_back(1 / (1 + std::exp(-sum)));
  }
  return confidences;
}

}  // namespace foretoken::proposer
