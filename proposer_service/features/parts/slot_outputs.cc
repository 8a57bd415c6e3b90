// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/parts/slot_outputs.h"

#include <algorithm>

#include "kernels/check.h"

namespace foretoken::proposer {

using kernels::DType;
using kernels::Shape;

SlotOutputs::SlotOutputs(kernels::Backend& backend, const Sizes& sizes)
    : backend_(backend),
      sizes_(sizes),
      outputs_(backend, DType::kBF16, Shape(sizes.num_slots, sizes.width)),
      staging_(backend, DType::kBF16, Shape(sizes.max_rows, sizes.width)),
      lists_(backend, 3, sizes.max_rows) {}

void SlotOutputs::Gather(const DraftPass& pass, const kernels::TensorView& features) {
  const auto num_given = static_cast<int32_t>(pass.given_rows.size());
  const auto num_predicted = static_cast<int32_t>(pass.predicted_rows.size());
  FT_CHECK(num_given + num_predicted == pass.batch.num_rows());
  FT_CHECK(static_cast<int64_t>(pass.given_features.size()) == num_given * sizes_.width);
  if (num_given > 0) {
    backend_.Copy(staging_.view().data, pass.given_features.data(), pass.given_features.size() * sizeof(uint16_t),
                  kernels::CopyKind::kToDevice);
    backend_.CopyRows(
        {.x = staging_.view(), .to = lists_.Upload(pass.given_rows, 0), .num_rows = num_given, .out = features});
  }
  if (num_predicted > 0) {
    backend_.CopyRows({.x = outputs_.view(),
                       .from = lists_.Upload(pass.parent_slots, 1),
                       .to = lists_.Upload(pass.predicted_rows, 2),
                       .num_rows = num_predicted,
                       .out = features});
  }
}

void SlotOutputs::Gather(std::span<const int32_t> slots, const kernels::TensorView& outputs) {
  backend_.CopyRows({.x = outputs_.view(),
                     .from = lists_.Upload(slots, 0),
                     .num_rows = static_cast<int32_t>(slots.size()),
                     .out = outputs});
}

void SlotOutputs::Store(const kernels::ConstTensorView& outputs, const int32_t* slots) {
  backend_.CopyRows(
      {.x = outputs, .to = slots, .num_rows = static_cast<int32_t>(outputs.shape[0]), .out = outputs_.view()});
}

void SlotOutputs::Move(std::span<const kernels::KvMove> moves) {
  for (size_t begin = 0; begin < moves.size(); begin += static_cast<size_t>(sizes_.max_rows)) {
    std::vector<int32_t> from, to;
    for (const kernels::KvMove& move :
         moves.subspan(begin, std::min(moves.size() - begin, static_cast<size_t>(sizes_.max_rows)))) {
      from.push_back(move.from_slot);
      to.push_back(move.to_slot);
    }
    const auto num_rows = static_cast<int32_t>(from.size());
    backend_.CopyRows(
        {.x = outputs_.view(), .from = lists_.Upload(from, 0), .num_rows = num_rows, .out = staging_.view()});
    backend_.CopyRows({.x = staging_.view(), .to = lists_.Upload(to, 1), .num_rows = num_rows, .out = outputs_.view()});
  }
}

}  // namespace foretoken::proposer
