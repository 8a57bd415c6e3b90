// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/step_report_conversion.h"

namespace foretoken::verifier {
namespace {

void Convert(const ReportedTree& from, v1::StepTree& to) {
  to.mutable_token_ids()->Add(from.token_ids.begin(), from.token_ids.end());
  to.mutable_parents()->Add(from.parents.begin(), from.parents.end());
  to.mutable_chances()->Add(from.chances.begin(), from.chances.end());
  to.mutable_path_chances()->Add(from.path_chances.begin(), from.path_chances.end());
  to.mutable_proposers()->Add(from.proposers.begin(), from.proposers.end());
  to.mutable_planned()->Add(from.planned.begin(), from.planned.end());
}

void Convert(const StepSummary& from, v1::StepReport& to) {
  to.set_step(from.step_idx);
  v1::StepBatch& batch = *to.mutable_batch();
  batch.set_num_sequences(from.forecast.num_sequences);
  batch.set_num_rows(from.forecast.num_rows);
  batch.set_num_prompt_rows(from.forecast.num_prompt_rows);
  batch.set_num_tree_rows(from.forecast.num_tree_rows);
  batch.set_expected_tokens(static_cast<float>(from.forecast.expected_tokens));
  batch.set_expected_tokens_without_trees(static_cast<float>(from.forecast.num_emitting));
  batch.set_predicted_ms_without_trees(from.forecast.step_ms_without_trees);
  batch.set_between_ms(from.forecast.between_ms);
  batch.set_is_curious(from.forecast.is_curious);
  v1::StepTimes& times = *to.mutable_times();
  times.set_predicted_ms(from.forecast.step_ms);
  times.set_forward_ms(static_cast<float>(from.times.forward_ms));
  times.set_draw_ms(static_cast<float>(from.times.draw_ms));
  times.set_host_ms(static_cast<float>(from.times.host_ms));
  times.set_wait_ms(static_cast<float>(from.times.wait_ms));
}

}  // namespace

v1::StepReport ToProto(const StepReport& report) {
  v1::StepReport message;
  Convert(report.step, message);
  message.set_position(report.position);
  message.set_num_context_rows(report.num_context_rows);
  for (const ReportedProposer& proposer : report.proposers) {
    v1::StepProposer& to = *message.add_proposers();
    to.set_proposer(proposer.name);
    to.set_position(proposer.position);
    to.set_num_nodes(proposer.num_nodes);
    to.set_num_predicted_features(proposer.num_predicted_features);
    if (proposer.is_new)
      to.set_round_trip_ms(static_cast<float>(absl::ToDoubleMilliseconds(proposer.arrived - proposer.asked)));
  }
  if (!report.tree.token_ids.empty()) Convert(report.tree, *message.mutable_tree());
  message.mutable_accepted()->Add(report.accepted.begin(), report.accepted.end());
  message.mutable_token_ids()->Add(report.token_ids.begin(), report.token_ids.end());
  if (report.draws) message.set_expected_tokens(report.expected_tokens);
  return message;
}

}  // namespace foretoken::verifier
