// SPDX-License-Identifier: Apache-2.0
// What the steps of one sample add up to: did guesses pay, did the server's expectations come true, where did the time
// go.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

struct ProposerSummary {
  int num_guessed = 0;  // nodes
  int num_planned = 0;
  int num_accepted = 0;
  int num_late_trees = 0;
};

struct DepthSummary {
  int num_tried = 0;  // steps whose walk came by a planned node here
  int num_accepted = 0;
};

struct StepsSummary {
  int num_steps = 0;  // that emitted
  int num_prompt_steps = 0;
  int num_lost = 0;  // not counted
  int num_tokens = 0;
  double expected_tokens = 0;
  int num_guessed = 0;  // nodes
  int num_planned = 0;
  int num_missed = 0;  // right, but without a row
  double forward_ms = 0;
  double draw_ms = 0;
  double host_ms = 0;
  double wait_ms = 0;
  double predicted_ms = 0;           // of forward and draw
  std::vector<DepthSummary> depths;  // from depth 1
  std::map<std::string, ProposerSummary> proposers;
};

// The steps are well-formed as CheckStep has it.
StepsSummary Summarise(std::span<const foretoken::v1::StepReport> steps);

// Lines, each with its end.
std::string ToText(const StepsSummary& summary);

}  // namespace foretoken::client
