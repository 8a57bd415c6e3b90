// SPDX-License-Identifier: Apache-2.0
// The prompt rows of a step: the number of rows for prompts beside the decoding sequences, and the share of each
// prompt. Pure functions. The cut of a prompt into steps changes no bit of the output (E1).
//
// Number of rows. Prompt rows make a step longer, and every decoding sequence in the step waits for it. The rules:
//   - If no sequence decodes, prompts get the whole step.
//   - A decoding sequence is protected from later prompts: the step lasts at most `max_inter_token_growth` times as
//     long as it would without prompts.
//   - If more prompts wait than sequences are protected, the time that prompts may add is multiplied by the number of
//     prompts per protected sequence. Then many requests gain at the cost of few.
//   - A decoding sequence is not protected from its peers. Its peers are the prompts that began to run before its first
//     token, or up to `burst_window` after it: they belong to one burst of requests. Peers get all free rows, so that
//     the burst soon decodes together. A prompt with more than `max_burst_prompt_tokens` left is never a peer, because
//     its length makes it late, not its place in the line.
//   - Prompts get at least one row, so that every prompt ends, and at most the step's row limit.
//
// Share of each prompt. A quarter of the rows, rounded up, goes to the oldest prompt, so that it always ends. Tenants
// share the other rows by their weights, and what a tenant does not need goes to the others. In a tenant the rows go to
// the prompt with the fewest tokens left, then to the next: a short prompt behind a long one begins soon, and prompts
// of equal length begin one after another. A higher priority goes before fewer tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

struct PromptLimits {
  // The longest step with prompts, relative to the step without them, while sequences decode. The guarantee to decoding
  // sequences is 1.5. The difference allows for errors in predicted durations.
  float max_inter_token_growth = 1.4f;
  int32_t max_burst_prompt_tokens = 1024;
  absl::Duration burst_window = absl::Milliseconds(100);
};

// A running sequence whose prompt is not computed yet.
struct WaitingPrompt {
  int32_t num_left = 0;  // tokens still to compute
  int32_t max_rows = 0;  // in one step, at most num_left
  int32_t priority = 0;
  absl::Time began;  // when the sequence began to run
  absl::string_view tenant;
  double weight = 1;  // of the tenant
};

struct PromptStep {
  StepLoad decoding;                         // the rows of the decoding sequences
  std::span<const absl::Time> first_tokens;  // time of each decoding sequence's first token; InfiniteFuture: none yet
  int32_t max_rows = 0;                      // of the step
};

// Returns the number of rows for all prompts together. It may exceed their remaining tokens. 0 without prompts.
int32_t NumPromptRows(std::span<const WaitingPrompt> prompts, const PromptStep& step, const PromptLimits& limits,
                      const StepCost& cost);

// Returns the rows of each prompt. `prompts` are in order of arrival, the oldest first.
std::vector<int32_t> SharePromptRows(std::span<const WaitingPrompt> prompts, int32_t num_rows);

}  // namespace foretoken::verifier
