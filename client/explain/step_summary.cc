// SPDX-License-Identifier: Apache-2.0
#include "client/explain/step_summary.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/explain/step_outcome.h"
#include "client/terminal.h"

namespace foretoken::client {
namespace {

using foretoken::v1::StepReport;

constexpr size_t kMaxDepthsShown = 8;

void AddTree(const StepReport& step, StepsSummary& summary) {
  const foretoken::v1::StepTree& tree = step.tree();
  const std::vector<NodeOutcome> outcomes = NodeOutcomes(step);
  const std::vector<int> depths = NodeDepths(tree);
  std::set<int> tried, accepted;
  for (int node = 0; node < tree.token_ids_size(); ++node) {
    const bool is_accepted = outcomes[node] == NodeOutcome::kAccepted;
    if (is_accepted) accepted.insert(depths[node]);
    if (is_accepted || outcomes[node] == NodeOutcome::kRejected) tried.insert(depths[node]);
    summary.num_planned += tree.planned(node) ? 1 : 0;
    summary.num_missed += outcomes[node] == NodeOutcome::kMissed ? 1 : 0;
    for (int i = 0; i < step.proposers_size() && i < 32; ++i) {
      if ((tree.proposers(node) >> i & 1) == 0) continue;
      ProposerSummary& proposer = summary.proposers[EscapeControls(step.proposers(i).proposer())];
      ++proposer.num_guessed;
      proposer.num_planned += tree.planned(node) ? 1 : 0;
      proposer.num_accepted += is_accepted ? 1 : 0;
    }
  }
  summary.num_guessed += tree.token_ids_size();
  if (!tried.empty()) summary.depths.resize(std::max<size_t>(summary.depths.size(), *tried.rbegin()));
  for (const int depth : tried) ++summary.depths[depth - 1].num_tried;
  for (const int depth : accepted) ++summary.depths[depth - 1].num_accepted;
}

std::string DepthsLine(const StepsSummary& summary) {
  std::string line = "accepted at depth";
  const size_t num_shown = std::min(summary.depths.size(), kMaxDepthsShown);
  for (size_t i = 0; i < num_shown; ++i) {
    absl::StrAppend(&line, i == 0 ? " " : ", ", i + 1, ": ", summary.depths[i].num_accepted, " of ",
                    summary.depths[i].num_tried);
  }
  if (num_shown < summary.depths.size()) absl::StrAppend(&line, ", to ", summary.depths.size());
  return absl::StrCat(line, "\n");
}

std::string TimesLine(const StepsSummary& summary) {
  const double model_ms = summary.forward_ms + summary.draw_ms;
  const double total_ms = model_ms + summary.host_ms + summary.wait_ms;
  if (total_ms <= 0) return "";
  const auto percent = [total_ms](double part_ms) { return 100 * part_ms / total_ms; };
  std::string line = absl::StrFormat("%.1f ms: %.1f %% forward, %.1f %% draw, %.1f %% host, %.1f %% waiting", total_ms,
                                     percent(summary.forward_ms), percent(summary.draw_ms), percent(summary.host_ms),
                                     percent(summary.wait_ms));
  if (summary.predicted_ms > 0) {
    absl::StrAppendFormat(&line, "; steps took %.2f x the predicted time", model_ms / summary.predicted_ms);
  }
  return absl::StrCat(line, "\n");
}

}  // namespace

StepsSummary Summarise(std::span<const StepReport> steps) {
  StepsSummary summary;
  for (const StepReport& step : steps) {
    summary.num_lost += static_cast<int>(step.num_lost());
    ++(step.token_ids().empty() ? summary.num_prompt_steps : summary.num_steps);
    summary.num_tokens += step.token_ids_size();
    summary.expected_tokens += step.expected_tokens();
    summary.forward_ms += step.times().forward_ms();
    summary.draw_ms += step.times().draw_ms();
    summary.host_ms += step.times().host_ms();
    summary.wait_ms += step.times().wait_ms();
    summary.predicted_ms += step.times().predicted_ms();
    for (const foretoken::v1::StepProposer& proposer : step.proposers()) {
      summary.proposers[EscapeControls(proposer.proposer())].num_late_trees +=
          proposer.position() < step.position() ? 1 : 0;
    }
    AddTree(step, summary);
  }
  return summary;
}

std::string ToText(const StepsSummary& summary) {
  if (summary.num_steps == 0) return "no step emitted a token\n";
  std::string text = absl::StrFormat("%d tokens in %d steps: %.2f a step, expected %.2f", summary.num_tokens,
                                     summary.num_steps, static_cast<double>(summary.num_tokens) / summary.num_steps,
                                     summary.expected_tokens / summary.num_steps);
  if (summary.num_prompt_steps > 0) absl::StrAppend(&text, "; ", summary.num_prompt_steps, " more for the prompt");
  if (summary.num_lost > 0) absl::StrAppend(&text, "; lost reports: ", summary.num_lost);
  absl::StrAppend(&text, "\n", TimesLine(summary));
  if (summary.num_guessed == 0) return text;
  absl::StrAppend(&text, DepthsLine(summary));
  absl::StrAppendFormat(&text, "%d of %d guessed nodes had a row; %d of the others would have been right\n",
                        summary.num_planned, summary.num_guessed, summary.num_missed);
  absl::StrAppendFormat(&text, "\n%-16s %9s %9s %9s %11s\n", "proposer", "guessed", "planned", "accepted",
                        "late trees");
  for (const auto& [name, proposer] : summary.proposers) {
    absl::StrAppendFormat(&text, "%-16s %9d %9d %9d %11d\n", name, proposer.num_guessed, proposer.num_planned,
                          proposer.num_accepted, proposer.num_late_trees);
  }
  return text;
}

}  // namespace foretoken::client
