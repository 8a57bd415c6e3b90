// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/prompt_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace foretoken::verifier {
namespace {

constexpr int32_t kOldestPart = 4;  // the oldest prompt gets one row of four

bool IsProtected(absl::Time first_token, const WaitingPrompt& prompt, const PromptLimits& limits) {
  return prompt.num_left > limits.max_burst_prompt_tokens || prompt.began > first_token + limits.burst_window;
}

// Returns the most prompt rows for which the step lasts at most `max_growth` times as long as without them.
int32_t RowsWithin(float max_growth, const StepLoad& decoding, int32_t room, const StepCost& cost) {
  const float limit_ms = max_growth * cost.Predict(decoding);
  int32_t num_rows = 1;
  const auto fits = [&](int32_t more) {
    return cost.Predict({.num_rows = decoding.num_rows + more, .num_positions = decoding.num_positions}) <= limit_ms;
  };
  while (num_rows < room && fits(num_rows + 1)) ++num_rows;
  return num_rows;
}

struct PromptsOfTenant {
  double weight = 1;
  int64_t num_wanted = 0;          // rows that its prompts could still take in this step
  std::vector<size_t> prompt_idx;  // the first gets its rows first
};

// Returns the tenant with the smallest need for its weight first. A tenant that needs less than its part leaves the
// rest to the tenants behind it.
std::vector<PromptsOfTenant> PromptsByTenant(std::span<const WaitingPrompt> prompts, std::span<const int32_t> rows) {
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](size_t i) { return std::tuple(-int64_t{prompts[i].priority}, prompts[i].num_left); });
  std::map<absl::string_view, PromptsOfTenant> by_name;
  for (const size_t prompt_idx : order) {
    const WaitingPrompt& prompt = prompts[prompt_idx];
    PromptsOfTenant& tenant = by_name[prompt.tenant];
    tenant.weight = prompt.weight;
    tenant.num_wanted += prompt.max_rows - rows[prompt_idx];
    tenant.prompt_idx.push_back(prompt_idx);
  }
  std::vector<PromptsOfTenant> tenants;
  for (auto& [name, tenant] : by_name) tenants.push_back(std::move(tenant));
  std::ranges::stable_sort(tenants, {}, [](const PromptsOfTenant& tenant) {
    return static_cast<double>(tenant.num_wanted) / tenant.weight;
  });
  return tenants;
}

}  // namespace

int32_t NumPromptRows(std::span<const WaitingPrompt> prompts, const PromptStep& step, const PromptLimits& limits,
                      const StepCost& cost) {
  const int32_t room = step.max_rows - step.decoding.num_rows;
  if (prompts.empty() || room <= 0) return 0;
  const auto num_protected = std::ranges::count_if(step.first_tokens, [&](absl::Time first_token) {
    return std::ranges::any_of(prompts, [&](const auto& prompt) { return IsProtected(first_token, prompt, limits); });
  });
  if (num_protected == 0) return room;
  int64_t num_unbounded = 0;  // rows of prompts that are peers of every decoding sequence
  for (const WaitingPrompt& prompt : prompts) {
    const auto is_protected = [&](absl::Time first_token) { return IsProtected(first_token, prompt, limits); };
    if (std::ranges::none_of(step.first_tokens, is_protected)) num_unbounded += prompt.num_left;
  }
  const float prompts_per_stream = static_cast<float>(prompts.size()) / static_cast<float>(num_protected);
  const float growth = 1 + (limits.max_inter_token_growth - 1) * std::max(1.0f, prompts_per_stream);
  const int32_t num_bounded = RowsWithin(growth, step.decoding, room, cost);
  return std::max(num_bounded, static_cast<int32_t>(std::min<int64_t>(num_unbounded, room)));
}

std::vector<int32_t> SharePromptRows(std::span<const WaitingPrompt> prompts, int32_t num_rows) {
  std::vector<int32_t> rows(prompts.size(), 0);
  if (prompts.empty()) return rows;
  const auto give = [&](size_t prompt_idx, int32_t most) {
    const int32_t more = std::min(prompts[prompt_idx].max_rows - rows[prompt_idx], most);
    rows[prompt_idx] += more;
    return more;
  };
  num_rows -= give(0, (num_rows + kOldestPart - 1) / kOldestPart);
  const std::vector<PromptsOfTenant> tenants = PromptsByTenant(prompts, rows);
  double weights = 0;  // of the tenants that have no rows yet
  for (const PromptsOfTenant& tenant : tenants) weights += tenant.weight;
  for (const PromptsOfTenant& tenant : tenants) {
    const bool is_last = &tenant == &tenants.back();
    int32_t part = is_last ? num_rows : static_cast<int32_t>(std::lround(num_rows * tenant.weight / weights));
    weights -= tenant.weight;
    for (const size_t prompt_idx : tenant.prompt_idx) {
      const int32_t more = give(prompt_idx, part);
      part -= more;
      num_rows -= more;
    }
  }
  return rows;
}

}  // namespace foretoken::verifier
