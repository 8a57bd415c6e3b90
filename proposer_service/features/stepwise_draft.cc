// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/stepwise_draft.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/check.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;

// Places of lists in the backend's memory.
enum Place : int32_t { kTokens, kSlots, kLogitRows, kNumPlaces };

}  // namespace

struct StepwiseDraft::Group {
  int32_t step = 0;
  std::vector<int32_t> rows;        // of the pass
  std::vector<int32_t> logit_rows;  // the places of their logits
  std::vector<int32_t> token_ids;
  std::vector<int32_t> slots;
};

StepwiseDraft::StepwiseDraft(std::unique_ptr<kernels::Backend> backend, const Limits& limits, int64_t state_width)
    : backend_(std::move(backend)),
      limits_(limits),
      states_(*backend_, {.num_slots = int64_t{limits.num_blocks} * kernels::kKvBlockSize,
                          .width = state_width,
                          .max_rows = limits.max_rows}),
      lists_(*backend_, kNumPlaces, limits.max_rows),
      features_(*backend_, DType::kBF16, Shape(limits.max_rows, limits.feature_width)),
      state_in_(*backend_, DType::kBF16, Shape(limits.max_rows, state_width)),
      state_out_(*backend_, DType::kBF16, Shape(limits.max_rows, state_width)),
      logits_(*backend_, DType::kF32, Shape(limits.max_rows, limits.vocab_size)) {}

ConstTensorView StepwiseDraft::InputOf(const Group& group, const DraftPass& pass) {
  const auto num_rows = static_cast<int64_t>(group.rows.size());
  if (group.step > 0) {
    std::vector<int32_t> parents;
    for (const int32_t row : group.rows) parents.push_back(pass.parent_slots[PlaceOf(pass.predicted_rows, row)]);
    states_.Gather(parents, state_in_.rows(num_rows));
    return state_in_.rows(num_rows);
  }
  std::vector<uint16_t> features;
  for (const int32_t row : group.rows) {
    const auto begin = pass.given_features.begin() + PlaceOf(pass.given_rows, row) * limits_.feature_width;
    features.insert(features.end(), begin, begin + limits_.feature_width);
  }
  backend_->Copy(features_.view().data, features.data(), features.size() * sizeof(uint16_t),
                 kernels::CopyKind::kToDevice);
  return features_.rows(num_rows);
}

ConstTensorView StepwiseDraft::Forward(const DraftPass& pass) {
  std::map<int32_t, Group> groups;  // by their weights
  for (size_t i = 0; i < pass.batch.logit_rows.size(); ++i) {
    const int32_t row = pass.batch.logit_rows[i], step = pass.steps[row];
    FT_CHECK(step < limits_.max_steps);
    Group& group = groups[WeightsOf(step)];
    if (group.rows.empty()) group.step = step;
    group.rows.push_back(row);
    group.logit_rows.push_back(static_cast<int32_t>(i));
    group.token_ids.push_back(pass.batch.token_ids[row]);
    group.slots.push_back(pass.batch.slots[row]);
  }
  for (const auto& [weights, group] : groups) {
    const auto num_rows = static_cast<int32_t>(group.rows.size());
    const StepRows rows = {
        .step = group.step, .token_ids = lists_.Upload(group.token_ids, kTokens), .input = InputOf(group, pass)};
    const kernels::TensorView states = state_out_.rows(num_rows);
    const ConstTensorView logits = Compute(rows, states);
    states_.Store(states, lists_.Upload(group.slots, kSlots));
    if (groups.size() == 1) return logits;
    backend_->CopyRows(
        {.x = logits, .to = lists_.Upload(group.logit_rows, kLogitRows), .num_rows = num_rows, .out = logits_.view()});
  }
  return logits_.rows(static_cast<int64_t>(pass.batch.logit_rows.size()));
}

}  // namespace foretoken::proposer
