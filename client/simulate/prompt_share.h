// SPDX-License-Identifier: Apache-2.0
// How much of a simulated step prompts get, by the rules of the verifier's planner/prompt_rows.h: prompts lengthen a
// step by a bound, unless they began together with the sequences that decode. A quarter of the rows goes to the oldest
// prompt, the rest to the prompt with the fewest tokens left.
//
// Units: milliseconds. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/simulate/profile.h"

namespace foretoken::client {

struct SimulatedPrompt {
  int32_t num_left = 0;  // tokens to compute
  double began_ms = 0;   // when it left the queue
};

// The verifier's flags of these names, with their defaults.
struct PromptBounds {
  int32_t max_step_rows = 512;
  double max_inter_token_growth = 1.4;  // of a step's time
  int32_t max_burst_prompt_tokens = 1024;
  double burst_window_ms = 100;
};

// Returns the rows for all prompts together, which may be more than they have left. `first_token_ms` has an entry for
// each decoding sequence.
int32_t NumPromptRows(std::span<const SimulatedPrompt> prompts, std::span<const double> first_token_ms,
                      const PromptBounds& bounds, std::span<const ProfileRows> rows);

// Returns the rows of each prompt. `prompts` are in order of arrival.
std::vector<int32_t> SharePromptRows(std::span<const SimulatedPrompt> prompts, int32_t num_rows);

}  // namespace foretoken::client
