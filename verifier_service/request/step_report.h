// SPDX-License-Identifier: Apache-2.0
// What one step did, told to the clients that ask for it: plain data between the engine, which fills it in, and the rpc
// adapter (v1::StepReport has the meaning of every field).
//
// Units: milliseconds, tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace foretoken::verifier {

// What the planner expects of a step that it has planned.
struct StepForecast {
  int32_t num_sequences = 0;
  int32_t num_emitting = 0;  // sequences that draw: without trees the step would emit so many tokens
  int32_t num_rows = 0;
  int32_t num_prompt_rows = 0;
  int32_t num_tree_rows = 0;
  int32_t num_offered_nodes = 0;  // of all trees
  double expected_tokens = 0;     // of all sequences
  float step_ms = 0;              // the forward pass and the draw
  float step_ms_without_trees = 0;
  float between_ms = 0;     // between two steps, whatever they compute
  bool is_curious = false;  // the step takes more rows than would pay, to learn
};

// Where time went. A step's host time is the engine's own work since the end of the step before; waiting for proposals
// is apart.
struct StepTimes {
  double forward_ms = 0;  // the transformer
  double draw_ms = 0;     // accepted K/V moved into place included
  double host_ms = 0;
  double wait_ms = 0;

  StepTimes& operator+=(const StepTimes& other) {
    forward_ms += other.forward_ms;
    draw_ms += other.draw_ms;
    host_ms += other.host_ms;
    wait_ms += other.wait_ms;
    return *this;
  }
};

// A step as a whole.
struct StepSummary {
  uint64_t step_idx = 0;  // counts from 1
  StepForecast forecast;
  StepTimes times;  // since the end of the step before
};

// A proposer's newest tree.
struct ReportedProposer {
  std::string name;
  uint64_t position = 0;  // where the tree stood when it arrived
  int32_t num_nodes = 0;  // left of it at the step
};

// What was guessed, merged: parallel arrays, as the protocol has them.
struct ReportedTree {
  std::vector<int32_t> token_ids;   // [N]
  std::vector<int32_t> parents;     // [N]
  std::vector<float> chances;       // [N] stated, given the parent
  std::vector<float> path_chances;  // [N] as experience says
  std::vector<uint32_t> proposers;  // [N] bit i: StepReport::proposers[i]
  std::vector<bool> planned;        // [N] had a row
};

// One sample's part of it.
struct StepReport {
  StepSummary step;
  int32_t position = 0;
  int32_t num_context_rows = 0;
  std::vector<ReportedProposer> proposers;
  ReportedTree tree;
  std::vector<int32_t> accepted;   // node indices of the tree, from the root on
  std::vector<int32_t> token_ids;  // emitted
  bool draws = false;              // could emit
  float expected_tokens = 0;       // where it draws
};

}  // namespace foretoken::verifier
