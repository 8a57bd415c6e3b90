// SPDX-License-Identifier: Apache-2.0
// What one step did, told to the clients that ask for it: plain data between the engine, which fills it in, and the rpc
// adapter (v1::StepReport has the meaning of every field).
//
// Units: milliseconds, tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verifier_service/engine/step_forecast.h"

namespace foretoken::verifier {

// Where time went. A step's host time reaches from one result's arrival to the next launch; waiting for proposals is
// apart.
struct StepTimes {
  double forward_ms = 0;  // the transformer
  double draw_ms = 0;     // accepted K/V moved into place included
  double host_ms = 0;
  double wait_ms = 0;

  friend StepTimes operator-(const StepTimes& a, const StepTimes& b) {
    return {.forward_ms = a.forward_ms - b.forward_ms,
            .draw_ms = a.draw_ms - b.draw_ms,
            .host_ms = a.host_ms - b.host_ms,
            .wait_ms = a.wait_ms - b.wait_ms};
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
