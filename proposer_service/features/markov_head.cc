// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/markov_head.h"

#include <cmath>
#include <utility>

#include "kernels/dtype.h"

namespace foretoken::proposer {

using kernels::DType;
using kernels::Shape;

MarkovHead::MarkovHead(Weights weights, kernels::Backend& backend, int32_t max_rows)
    : backend_(backend), weights_(std::move(weights)) {
  if (weights_.rank == 0) return;
  embedded_ = tensor::Tensor(backend, DType::kF32, Shape(max_rows, weights_.rank));
  narrow_ = tensor::Tensor(backend, DType::kBF16, Shape(max_rows, weights_.rank));
}

std::optional<DraftHead::Term> MarkovHead::Term(const kernels::ConstTensorView& outputs, const int32_t* token_ids) {
  num_rows_ = outputs.shape[0];
  const auto keep = [&](const kernels::ConstTensorView& from, std::vector<uint16_t>& to) {
    if (weights_.confidence.empty()) return;
    to.resize(static_cast<size_t>(from.shape.num_elements()));
    backend_.Copy(to.data(), from.data, to.size() * sizeof(uint16_t), kernels::CopyKind::kToHost);
  };
  keep(outputs, outputs_);
  if (weights_.rank == 0) return std::nullopt;
  const kernels::TensorView embedded = embedded_.rows(num_rows_), narrow = narrow_.rows(num_rows_);
  backend_.Embed({.weight = weights_.by_token.get(), .token_ids = token_ids, .out = embedded});
  backend_.CopyRows({.x = embedded, .num_rows = static_cast<int32_t>(num_rows_), .out = narrow});
  keep(narrow, by_token_);
  return DraftHead::Term{.x = narrow, .weight = weights_.to_logits.get()};
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
