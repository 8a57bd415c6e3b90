// SPDX-License-Identifier: Apache-2.0
#include "client/simulate/prompt_share.h"

#include <algorithm>
#include <numeric>

#include "client/simulate/levels.h"

namespace foretoken::client {
namespace {

constexpr int32_t kOldestPart = 4;  // the oldest prompt gets one row of four

// Returns the most rows, of 1 to `room`, with which the step lasts at most `max_growth` times as long as without them.
int32_t RowsWithin(double max_growth, double num_decoding, int32_t room, std::span<const ProfileRows> rows) {
  const double limit_ms = max_growth * StepMsOfRows(rows, num_decoding);
  int32_t fit = 1, too_many = room + 1;
  while (too_many - fit > 1) {
    const int32_t middle = fit + (too_many - fit) / 2;
    (StepMsOfRows(rows, num_decoding + middle) <= limit_ms ? fit : too_many) = middle;
  }
  return fit;
}

}  // namespace

int32_t NumPromptRows(std::span<const SimulatedPrompt> prompts, std::span<const double> first_token_ms,
                      const PromptBounds& bounds, std::span<const ProfileRows> rows) {
  const auto num_decoding = static_cast<int32_t>(first_token_ms.size());
  const int32_t room = bounds.max_step_rows - num_decoding;
  if (prompts.empty() || room <= 0) return 0;
  if (first_token_ms.empty()) return room;
  const auto is_long = [&](const SimulatedPrompt& p) { return p.num_left > bounds.max_burst_prompt_tokens; };
  const double last_began_ms = std::ranges::max(prompts, {}, &SimulatedPrompt::began_ms).began_ms;
  const auto num_protected =
      std::ranges::any_of(prompts, is_long) ? num_decoding : std::ranges::count_if(first_token_ms, [&](double ms) {
        return last_began_ms > ms + bounds.burst_window_ms;
      });
  if (num_protected == 0) return room;
  int64_t num_unbounded = 0;  // rows of prompts that began together with every decoding sequence
  for (const SimulatedPrompt& prompt : prompts) {
    const bool is_peer = prompt.began_ms <= std::ranges::min(first_token_ms) + bounds.burst_window_ms;
    if (is_peer && !is_long(prompt)) num_unbounded += prompt.num_left;
  }
  const double prompts_per_stream = static_cast<double>(prompts.size()) / static_cast<double>(num_protected);
  const double growth = 1 + (bounds.max_inter_token_growth - 1) * std::max(1.0, prompts_per_stream);
  return std::max(RowsWithin(growth, num_decoding, room, rows),
                  static_cast<int32_t>(std::min<int64_t>(num_unbounded, room)));
}

std::vector<int32_t> SharePromptRows(std::span<const SimulatedPrompt> prompts, int32_t num_rows) {
  std::vector<int32_t> shares(prompts.size(), 0);
  if (prompts.empty()) return shares;
  const auto give = [&](size_t prompt_idx, int32_t most) {
    const int32_t more = std::min(prompts[prompt_idx].num_left - shares[prompt_idx], most);
    shares[prompt_idx] += more;
    num_rows -= more;
  };
  give(0, (num_rows + kOldestPart - 1) / kOldestPart);
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return prompts[i].num_left; });
  for (const size_t prompt_idx : order) give(prompt_idx, num_rows);
  return shares;
}

}  // namespace foretoken::client
