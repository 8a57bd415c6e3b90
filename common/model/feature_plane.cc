// SPDX-License-Identifier: Apache-2.0
#include "common/model/feature_plane.h"

#include <algorithm>

#include "common/model/forward_batch.h"
#include "kernels/check.h"

namespace foretoken::model {

using kernels::CopyKind;
using kernels::DType;
using kernels::kKvBlockSize;
using kernels::Shape;
using speculation::FeatureProjection;
using tensor::Tensor;

namespace {

int64_t OutputsOfPart(int64_t num_outputs, int64_t num_inputs) {
  constexpr int64_t kBf16 = 2, kMultiple = 64;  // tiles of outputs are full
  const int64_t num_multiples = FeaturePlane::kPartBytes / (kBf16 * num_inputs * kMultiple);
  return std::min(std::max<int64_t>(num_multiples, 1) * kMultiple, num_outputs);
}

}  // namespace

FeaturePlane::FeaturePlane(const speculation::TargetFeatures& features, Transformer& transformer, int32_t num_blocks)
    : transformer_(transformer),
      backend_(transformer.backend()),
      layers_(features.layers),
      is_final_norm_(features.layers.empty()),
      width_(features.width()) {
  const int64_t E = transformer.config().hidden_size;
  FT_CHECK(features.target_hidden_size == E);
  if (is_final_norm_) layers_ = {static_cast<int32_t>(transformer.config().num_layers)};
  const int64_t num_slots = int64_t{num_blocks} * kKvBlockSize, max_rows = transformer.options().max_rows;
  values_ = Tensor(backend_, DType::kBF16, Shape(num_slots, width_));
  is_known_.assign(num_slots, false);
  row_numbers_ = Tensor(backend_, DType::kF32, Shape(2 * max_rows));  // integers of the same size
  normed_ = Tensor(backend_, DType::kBF16, Shape(max_rows, E));
  if (!features.projection.has_value()) {
    FT_CHECK(layers_.size() == 1);
    return;
  }
  const FeatureProjection& projection = *features.projection;
  const int64_t num_inputs = static_cast<int64_t>(layers_.size()) * E;
  FT_CHECK(static_cast<int64_t>(projection.weight.size()) == width_ * num_inputs);
  unprepared_ = projection.weight;
  num_projected_ = width_;
  part_outputs_ = OutputsOfPart(width_, num_inputs);
  if (projection.norm != FeatureProjection::Norm::kNone) {
    FT_CHECK(static_cast<int64_t>(projection.gains.size()) == num_inputs);
    gains_ = Tensor::FromHost(backend_, projection.gains);
  }
  projection_ = {.num_outputs = width_, .norm = projection.norm, .eps = projection.eps};
  if (projection.norm == FeatureProjection::Norm::kWhole) {
    unnormed_ = Tensor(backend_, DType::kF32, Shape(max_rows, num_inputs));
  }
  inputs_ = Tensor(backend_, DType::kBF16, Shape(max_rows, num_inputs));
  projected_ = Tensor(backend_, DType::kF32, Shape(max_rows, part_outputs_));
}

bool FeaturePlane::Prepare() {
  if (is_prepared()) return true;
  const int64_t num_inputs = inputs_.view().shape[1];
  const int64_t num_outputs = std::min(part_outputs_, num_projected_ - next_output_);
  const kernels::ConstTensorView part = {unprepared_.data() + next_output_ * num_inputs, DType::kBF16,
                                         Shape(num_outputs, num_inputs)};
  parts_.push_back(backend_.PrepareWeight({.parts = std::span(&part, 1)}));
  next_output_ += num_outputs;
  return is_prepared();
}

size_t FeaturePlane::num_unprepared_bytes() const {
  if (is_prepared()) return 0;
  return static_cast<size_t>((num_projected_ - next_output_) * inputs_.view().shape[1]) * sizeof(uint16_t);
}

kernels::MemoryNeed FeaturePlane::NeedOf(const speculation::TargetFeatures& features, const Transformer& transformer,
                                         int32_t num_blocks) {
  constexpr size_t kBf16 = 2, kF32 = 4;
  const auto E = static_cast<size_t>(transformer.config().hidden_size), H = static_cast<size_t>(features.width());
  const auto max_rows = static_cast<size_t>(transformer.options().max_rows);
  const size_t num_layers = std::max<size_t>(features.layers.size(), 1);
  const bool is_projected = features.projection.has_value();
  const auto part_outputs = static_cast<size_t>(OutputsOfPart(features.width(), static_cast<int64_t>(num_layers * E)));
  const size_t row_bytes = kF32 * num_layers * E + kBf16 * E +  // captured, and normed
                           (is_projected ? (kF32 + kBf16) * num_layers * E + kF32 * part_outputs : 0);
  return {.weight_bytes = is_projected ? (kBf16 * H + kF32) * num_layers * E : 0,
          .kv_bytes = static_cast<size_t>(num_blocks) * kKvBlockSize * H * kBf16,
          .pass_bytes = max_rows * row_bytes};
}

void FeaturePlane::Store(std::span<const FeatureRow> rows) {
  FT_CHECK(is_prepared());
  if (rows.empty()) return;
  const auto num_rows = static_cast<int32_t>(rows.size());
  FT_CHECK(num_rows <= transformer_.options().max_rows);
  std::vector<int32_t> numbers;
  for (const FeatureRow& row : rows) numbers.push_back(row.row);
  for (const FeatureRow& row : rows) numbers.push_back(row.slot);
  auto* const device_rows = static_cast<int32_t*>(row_numbers_.view().data);
  const int32_t* const device_slots = device_rows + num_rows;
  backend_.Copy(device_rows, numbers.data(), numbers.size() * sizeof(int32_t), CopyKind::kToDevice);
  const auto place = [&](const kernels::ConstTensorView& features, const int32_t* from) {
    backend_.CopyRows({.x = features, .from = from, .to = device_slots, .num_rows = num_rows, .out = values_.view()});
  };
  if (!parts_.empty()) {
    GatherInputs(device_rows, num_rows);
    Project(device_slots, num_rows);
  } else if (is_final_norm_) {
    backend_.RmsNorm({.x = transformer_.captured(layers_[0]),
                      .rows = device_rows,
                      .gain = transformer_.final_norm(),
                      .eps = static_cast<float>(transformer_.config().rms_norm_eps),
                      .out = normed_.rows(num_rows)});
    place(normed_.rows(num_rows), nullptr);
  } else {
    place(transformer_.captured(layers_[0]), device_rows);
  }
  for (const FeatureRow& row : rows) is_known_[row.slot] = true;
}

void FeaturePlane::Skip(std::span<const FeatureRow> rows) {
  for (const FeatureRow& row : rows) is_known_[row.slot] = false;
}

void FeaturePlane::Project(const int32_t* slots, int32_t num_rows) {
  int64_t first_output = 0;
  for (const auto& part : parts_) {
    const int64_t num_outputs = std::min(part_outputs_, num_projected_ - first_output);
    const kernels::TensorView projected = {projected_.view().data, DType::kF32, Shape(num_rows, num_outputs)};
    backend_.MatMul({.x = inputs_.rows(num_rows), .weight = part.get(), .out = projected});
    backend_.CopyRows(
        {.x = projected, .to = slots, .num_rows = num_rows, .out = values_.view(), .first_column = first_output});
    first_output += num_outputs;
  }
}

// Puts the layers of the listed rows side by side into inputs_, normed as the projection wants them.
void FeaturePlane::GatherInputs(const int32_t* rows, int32_t num_rows) {
  const int64_t E = transformer_.config().hidden_size;
  const bool is_whole = projection_->norm == FeatureProjection::Norm::kWhole;
  for (size_t a = 0; a < layers_.size(); ++a) {
    const int64_t first_column = static_cast<int64_t>(a) * E;
    kernels::ConstTensorView residual = transformer_.captured(layers_[a]);
    const int32_t* from = rows;
    if (projection_->norm == FeatureProjection::Norm::kPerLayer) {
      backend_.RmsNorm({.x = residual,
                        .rows = rows,
                        .gain = gains_.f32() + first_column,
                        .eps = projection_->eps,
                        .out = normed_.rows(num_rows)});
      residual = normed_.rows(num_rows);
      from = nullptr;
    }
    backend_.CopyRows({.x = residual,
                       .from = from,
                       .num_rows = num_rows,
                       .out = is_whole ? unnormed_.view() : inputs_.view(),
                       .first_column = first_column});
  }
  if (is_whole) {
    backend_.RmsNorm(
        {.x = unnormed_.rows(num_rows), .gain = gains_.f32(), .eps = projection_->eps, .out = inputs_.rows(num_rows)});
  }
}

int32_t FeaturePlane::FirstKnown(std::span<const int32_t> blocks, int32_t begin, int32_t end) const {
  int32_t first = end;
  while (first > begin && is_known_[SlotOf(blocks, first - 1)]) --first;
  return first;
}

std::vector<uint16_t> FeaturePlane::Read(std::span<const int32_t> blocks, int32_t begin, int32_t end) const {
  std::vector<uint16_t> features(static_cast<size_t>((end - begin) * width_));
  for (int32_t position = begin; position < end;) {  // a block's slots lie side by side
    const int32_t run_end = std::min(end, (position / kKvBlockSize + 1) * kKvBlockSize);
    backend_.Copy(features.data() + (position - begin) * width_,
                  values_.view().as<uint16_t>() + SlotOf(blocks, position) * width_,
                  static_cast<size_t>((run_end - position) * width_) * sizeof(uint16_t), CopyKind::kToHost);
    position = run_end;
  }
  backend_.Synchronize();
  return features;
}

}  // namespace foretoken::model
