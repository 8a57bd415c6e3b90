// SPDX-License-Identifier: Apache-2.0
// Hand-written step reports, for tests of the code that shows them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "foretoken/v1/generation.pb.h"

namespace foretoken::testing {

struct ReportedNode {
  char token;  // the id is the character, as in the fake service
  int parent;
  float chance;
  float path_chance;
  uint32_t proposers = 1;
  bool planned = true;
};

inline v1::StepReport MakeReport(uint64_t step, uint64_t position, const std::string& emitted,
                                 std::initializer_list<ReportedNode> nodes = {},
                                 std::initializer_list<uint32_t> accepted = {}) {
  v1::StepReport report;
  report.set_step(step);
  report.set_position(position);
  report.set_num_context_rows(1);
  float expected = 1;
  for (const ReportedNode& node : nodes) {
    v1::StepTree& tree = *report.mutable_tree();
    tree.add_token_ids(static_cast<uint32_t>(node.token));
    tree.add_parents(node.parent);
    tree.add_chances(node.chance);
    tree.add_path_chances(node.path_chance);
    tree.add_proposers(node.proposers);
    tree.add_planned(node.planned);
    expected += node.planned ? node.path_chance : 0;
  }
  for (const uint32_t node : accepted) report.add_accepted(node);
  for (const char token : emitted) report.add_token_ids(static_cast<uint32_t>(token));
  if (!emitted.empty()) report.set_expected_tokens(expected);
  v1::StepBatch& batch = *report.mutable_batch();
  batch.set_num_sequences(1);
  batch.set_num_rows(static_cast<uint32_t>(1 + nodes.size()));
  batch.set_expected_tokens(expected);
  batch.set_expected_tokens_without_trees(1);
  batch.set_predicted_ms_without_trees(4);
  v1::StepTimes& times = *report.mutable_times();
  times.set_predicted_ms(5);
  times.set_forward_ms(4.5f);
  times.set_draw_ms(0.5f);
  times.set_host_ms(0.25f);
  return report;
}

inline void AddProposer(const std::string& name, uint64_t position, uint32_t num_nodes, v1::StepReport& report) {
  v1::StepProposer& proposer = *report.add_proposers();
  proposer.set_proposer(name);
  proposer.set_position(position);
  proposer.set_num_nodes(num_nodes);
}

// A report with two proposers, one of them late. The step accepts "ab" of "abc" and "ax" and emits "z". It had no rows
// for more nodes.
inline v1::StepReport BranchingReport() {
  v1::StepReport report = MakeReport(12, 341, "abz",
                                     {{'a', -1, .8f, .75f, 3},
                                      {'q', -1, .1f, .05f, 1, false},
                                      {'b', 0, .75f, .5f, 2},
                                      {'x', 0, .25f, .25f, 1},
                                      {'c', 2, .5f, .2f, 2},
                                      {'z', 2, .2f, .1f, 2, false},
                                      {'y', 3, .5f, .1f, 1},
                                      {'z', 1, .5f, .02f, 1, false}},
                                     {0, 2});
  AddProposer("ngram", 341, 5, report);
  AddProposer("draft", 339, 4, report);
  report.mutable_batch()->set_is_curious(true);
  report.mutable_times()->set_wait_ms(0.4f);
  return report;
}

}  // namespace foretoken::testing
