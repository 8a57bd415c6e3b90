// SPDX-License-Identifier: Apache-2.0
// The report of one step, for clients that ask for it. The engine fills it, and the client API converts it to
// v1::StepReport, whose comments explain every field. Plain data.
//
// Units: milliseconds, tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace foretoken::verifier {

// The planner's expectations of a planned step.
struct StepForecast {
  int32_t num_sequences = 0;
  int32_t num_emitting = 0;  // sequences that draw; without trees the step emits one token for each
  int32_t num_decoding = 0;  // sequences whose prompt earlier steps have computed; each of them draws
  int32_t num_rows = 0;
  int32_t num_prompt_rows = 0;
  int32_t num_tree_rows = 0;
  int32_t num_offered_nodes = 0;  // nodes of all trees
  double expected_tokens = 0;     // sum over all sequences
  float step_ms = 0;              // the forward pass and the draw
  float step_ms_without_trees = 0;
  float prompt_ms = 0;                 // of step_ms_without_trees, what prompts add to the decoding sequences' time
  float between_ms = 0;                // time between two forward passes, independent of their rows
  float between_ms_without_waits = 0;  // likewise, if no step waited for proposals
  bool is_curious = false;             // the step takes more rows than would pay, to learn
};

// The parts of a step's time. host_ms is the engine's own work since the end of the step before.
struct StepTimes {
  double forward_ms = 0;  // the forward pass
  double draw_ms = 0;     // including the move of accepted K/V into place
  double host_ms = 0;
  double wait_ms = 0;  // for proposals

  StepTimes& operator+=(const StepTimes& other) {
    forward_ms += other.forward_ms;
    draw_ms += other.draw_ms;
    host_ms += other.host_ms;
    wait_ms += other.wait_ms;
    return *this;
  }
};

// The whole step, with all its sequences.
struct StepSummary {
  uint64_t step_idx = 0;   // counts from 1
  int32_t row_budget = 0;  // the most rows that the planner could take
  StepForecast forecast;
  StepTimes times;  // since the end of the step before
  absl::Time end;   // on the engine's clock
};

// A proposer's newest tree.
struct ReportedProposer {
  std::string name;
  uint64_t position = 0;                // the tree's position when it arrived
  int32_t num_nodes = 0;                // usable nodes in this step
  uint32_t num_predicted_features = 0;  // see TokenTree
  bool is_new = false;                  // no report before had this tree
  absl::Time asked, arrived;            // on the engine's clock
};

// The merged guesses of all proposers, as parallel arrays.
struct ReportedTree {
  std::vector<int32_t> token_ids;   // [N]
  std::vector<int32_t> parents;     // [N]
  std::vector<float> chances;       // [N] as stated by the proposers, given the parent
  std::vector<float> path_chances;  // [N] as estimated by the planner
  std::vector<uint32_t> proposers;  // [N] bit i: StepReport::proposers[i]
  std::vector<bool> planned;        // [N] true if the node had a row
};

// The report of one step for one sample.
struct StepReport {
  StepSummary step;
  int32_t position = 0;
  int32_t num_context_rows = 0;
  std::vector<ReportedProposer> proposers;
  int32_t node_budget = 0;  // the most guesses that the planner could give a row
  ReportedTree tree;
  std::vector<int32_t> accepted;   // node indices of the tree, from the root on
  std::vector<int32_t> token_ids;  // the emitted tokens
  bool draws = false;              // the step emitted tokens of this sample
  float expected_tokens = 0;       // set if the sample draws
  // The proposers that the request allows, by name, each in one list: those asked for trees for this step, those not
  // asked because asking them did not pay lately, those without a connected replica, and those whose replicas do not
  // take the sample. All are empty if the request does not speculate.
  std::vector<std::string> asked_proposers, resting_proposers, absent_proposers, refusing_proposers;
};

}  // namespace foretoken::verifier
