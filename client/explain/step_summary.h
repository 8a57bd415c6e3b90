// SPDX-License-Identifier: Apache-2.0
// The sums over the steps of one sample: the gain of guesses, the server's expectations compared with the results, and
// the times.
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
  int num_tried = 0;  // steps that reached a planned node at this depth
  int num_accepted = 0;
};

struct StepsSummary {
  int num_steps = 0;  // steps that emitted tokens
  int num_prompt_steps = 0;
  int num_lost = 0;  // steps without a report, because the client read too slowly
  int num_tokens = 0;
  double expected_tokens = 0;
  int num_guessed = 0;  // nodes
  int num_planned = 0;
  int num_missed = 0;  // would have been accepted, but had no row
  double forward_ms = 0;
  double draw_ms = 0;
  double host_ms = 0;
  double wait_ms = 0;
  double predicted_ms = 0;           // of forward and draw
  std::vector<DepthSummary> depths;  // from depth 1
  std::map<std::string, ProposerSummary> proposers;
};

// The steps must pass CheckStep.
StepsSummary Summarise(std::span<const foretoken::v1::StepReport> steps);

// The summary as lines, each with its line end.
std::string ToText(const StepsSummary& summary);

}  // namespace foretoken::client
