// SPDX-License-Identifier: Apache-2.0
// The prompt tokens of a step: how many rows prompts get beside the sequences that decode, and which prompts get them.
// Pure functions. How a prompt is cut changes no bit of what follows it (E1).
//
// How many. Prompt rows make a step longer, and every stream in it waits. So:
//   - Where nothing decodes, prompts get the whole step.
//   - A stream is protected from a prompt that came after it: the step lasts at most `max_inter_token_growth` times as
//     long as without prompts.
//   - Where more prompts wait than streams are protected, many gain what few lose. The time that prompts may add is
//   then
//     multiplied by the number of prompts per protected stream.
//   - A stream is not protected from its peers. They are the prompts that began to run before the stream's first token,
//     or up to `burst_window` after it: the stream was merely the first of a burst. Peers get all the rows that there
//     are, and the burst begins to decode together. A prompt with more than `max_burst_prompt_tokens` left is nobody's
//     peer: its length, not its place, is why it is late.
//   - One row is the least, so that every prompt ends. The step's row limit is the most.
//
// Which. A quarter of the rows, rounded up, goes to the oldest prompt, so that it ends whatever comes. The others go to
// the prompt with the fewest tokens left, then to the next: a short prompt behind a long one begins soon, and prompts
// of one length begin one after another. A higher priority goes before fewer tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

struct PromptLimits {
  // How much longer a step may get for prompts while others stream. Streams are promised 1.5; the rest is for what the
  // prediction of a step misses.
  float max_inter_token_growth = 1.4f;
  int32_t max_burst_prompt_tokens = 1024;
  absl::Duration burst_window = absl::Milliseconds(100);
};

// A running sequence whose prompt is not computed yet.
struct WaitingPrompt {
  int32_t num_left = 0;  // tokens, to compute
  int32_t max_rows = 0;  // in one step, at most num_left
  int32_t priority = 0;
  absl::Time began;  // to run
};

struct PromptStep {
  StepLoad decoding;                         // the rows of the sequences that decode
  std::span<const absl::Time> first_tokens;  // when each of them had its first token; InfiniteFuture: it had none
  int32_t max_rows = 0;                      // of the step
};

// How many rows the prompts get together; it may be more than they have left. Without prompts: 0.
int32_t NumPromptRows(std::span<const WaitingPrompt> prompts, const PromptStep& step, const PromptLimits& limits,
                      const StepCost& cost);

// The rows of each prompt. `prompts` stand in the order of arrival, the oldest first.
std::vector<int32_t> SharePromptRows(std::span<const WaitingPrompt> prompts, int32_t num_rows);

}  // namespace foretoken::verifier
