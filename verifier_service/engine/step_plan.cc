// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/step_plan.h"

#include <algorithm>
#include <utility>

#include "verifier_service/engine/gather.h"
#include "verifier_service/planner/planner.h"

namespace foretoken::verifier {
namespace {

// The most rows in a step for a prompt whose log-probabilities are requested, because each of these rows needs a row of
// logits.
constexpr int32_t kMaxScoredRows = 64;

struct PromptsOfStep {
  std::vector<Sequence*> sequences;
  std::vector<WaitingPrompt> prompts;  // one per entry of `sequences`
};

PromptsOfStep FindPrompts(const Scheduler& scheduler) {
  PromptsOfStep found;
  for (const auto& sequence : scheduler.running()) {
    if (sequence->decodes()) continue;
    const bool is_scored = sequence->request().output.num_prompt_logprobs.has_value() && !sequence->prompt_reported;
    const int32_t num_left = sequence->size() - sequence->num_computed;
    found.sequences.push_back(sequence.get());
    found.prompts.push_back({.num_left = num_left,
                             .max_rows = is_scored ? std::min(num_left, kMaxScoredRows) : num_left,
                             .priority = sequence->request().priority,
                             .began = sequence->began,
                             .tenant = sequence->request().tenant,
                             .weight = scheduler.WeightOf(*sequence)});
  }
  return found;
}

// Adds prompts to a plan that has the decoding sequences already.
void PlanPrompts(const Scheduler& scheduler, const StepPolicy& policy, const StepCost& step_cost,
                 const StepLimits& limits, std::vector<PlannedSequence>* plan) {
  const PromptsOfStep found = FindPrompts(scheduler);
  if (found.prompts.empty()) return;
  std::vector<absl::Time> first_tokens;
  for (const PlannedSequence& planned : *plan) first_tokens.push_back(planned.sequence->first_token_at);
  const PromptStep step = {.decoding = LoadOf(*plan), .first_tokens = first_tokens, .max_rows = limits.max_rows};
  int32_t num_rows = NumPromptRows(found.prompts, step, limits.prompts, step_cost);
  if (policy.is_curious) {
    num_rows = std::max(num_rows, step_cost.NextBucket(step.decoding.num_rows + num_rows) - step.decoding.num_rows);
  }
  const std::vector<int32_t> shares = SharePromptRows(found.prompts, num_rows);
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] > 0) plan->push_back({.sequence = found.sequences[i], .num_chain = shares[i]});
  }
}

TreeOffer OfferOf(const PlannedSequence& planned, const Experience& experience) {
  const Sequence& sequence = *planned.sequence;
  TreeOffer offer = {.max_nodes = sequence.active->max_tree_nodes,
                     .num_positions = sequence.size(),
                     .takes_all = sequence.request().speculation.mode == SpeculationMode::kAlways};
  if (sequence.grammar.has_value()) {
    offer.node_ms = static_cast<float>(absl::ToDoubleMilliseconds(sequence.grammar->mask_time()));
  }
  if (planned.rule() == kernels::VerificationRule::kKeyedDraw) {
    offer.path_chances = experience.calibration.PathChances(*planned.tree.guess);
  } else {  // chances by place, because the number of rows must not depend on the tree
    const std::span<const float> chances = experience.place_chances.chances();
    offer.path_chances.assign(chances.begin(), chances.end());
  }
  return offer;
}

// Gives rows to the chosen nodes of the guess, or to the best of them if there are too few slots.
void TakeNodes(std::vector<int32_t> node_idx, Scheduler& scheduler, PlannedSequence& planned) {
  PlannedTree& tree = planned.tree;
  tree.row_node_idx = std::move(node_idx);
  tree.rows = speculation::Keep(*tree.guess, tree.row_node_idx);
  tree.slots = scheduler.ReserveTree(*planned.sequence, tree.rows.num_nodes(), Depth(tree.rows));
  const auto num_slots = static_cast<int32_t>(tree.slots.slots.size());
  if (num_slots >= tree.rows.num_nodes()) return;
  std::vector<int32_t> best = speculation::BestNodeIdx(tree.rows, num_slots);
  std::sort(best.begin(), best.end());
  for (int32_t& node : best) node = tree.row_node_idx[node];
  tree.row_node_idx = std::move(best);
  tree.rows = speculation::Keep(*tree.guess, tree.row_node_idx);
}

// Gives rows to the best nodes of a rejection-sampled guess. The number of slots decides the number of rows, so it must
// not depend on the form of the tree. Therefore the slots are reserved as for a chain of num_nodes nodes, the form that
// needs the most. The choice of the nodes may depend on the tree, because no node's place depends on its descendants.
void TakeBestNodes(int32_t num_nodes, Scheduler& scheduler, PlannedSequence& planned) {
  PlannedTree& tree = planned.tree;
  auto& choice = std::get<TestedChoice>(tree.choice);
  tree.slots =
      scheduler.ReserveTree(*planned.sequence, num_nodes, std::min(num_nodes, MaxGuessDepth(*planned.sequence)));
  choice.row_budget = static_cast<int32_t>(tree.slots.slots.size());
  choice.best_node_idx = speculation::BestNodeIdx(*tree.guess, choice.row_budget + 1);
  const auto num_rows = std::min<size_t>(static_cast<size_t>(choice.row_budget), choice.best_node_idx.size());
  tree.row_node_idx.assign(choice.best_node_idx.begin(), choice.best_node_idx.begin() + num_rows);
  std::sort(tree.row_node_idx.begin(), tree.row_node_idx.end());
  tree.rows = speculation::Keep(*tree.guess, tree.row_node_idx);
  if (planned.sequence->grammar.has_value()) {  // a forbidden node is never accepted, so its row would be in vain
    std::vector<int32_t> allowed = planned.sequence->grammar->AllowedNodes(tree.rows);
    tree.rows = speculation::Keep(tree.rows, allowed);
    for (int32_t& node : allowed) node = tree.row_node_idx[node];
    tree.row_node_idx = std::move(allowed);
  }
  tree.slots.slots.resize(tree.row_node_idx.size());
}

void PlanTrees(const StepPolicy& policy, const Experience& experience, const StepLimits& limits, Scheduler& scheduler,
               std::vector<PlannedSequence>* plan) {
  std::vector<TreeOffer> offers;
  std::vector<PlannedSequence*> offering;
  offers.reserve(plan->size());
  offering.reserve(plan->size());
  for (PlannedSequence& planned : *plan) {
    if (planned.tree.guess == nullptr) continue;
    offers.push_back(OfferOf(planned, experience));
    offering.push_back(&planned);
  }
  const auto decodes = [](const PlannedSequence& planned) { return planned.sequence->decodes(); };
  std::vector<std::vector<int32_t>> chosen =
      ChooseNodes(offers,
                  {.fixed = LoadOf(*plan),
                   .max_rows = limits.max_rows,
                   .num_decoding = static_cast<int32_t>(std::ranges::count_if(*plan, decodes)),
                   .prompt_ms = PromptMs(*plan, experience.step_cost),
                   .between_ms = static_cast<float>(policy.between_ms),
                   .is_curious = policy.is_curious},
                  experience.step_cost);
  for (size_t i = 0; i < offering.size(); ++i) {
    PlannedSequence& planned = *offering[i];
    if (planned.rule() == kernels::VerificationRule::kKeyedDraw) {
      planned.tree.choice = KeyedChoice{.path_chances = std::move(offers[i].path_chances)};
      TakeNodes(std::move(chosen[i]), scheduler, planned);
    } else {
      planned.tree.choice = TestedChoice{.place_chances = std::move(offers[i].path_chances)};
      TakeBestNodes(static_cast<int32_t>(chosen[i].size()), scheduler, planned);
    }
  }
}

}  // namespace

float PlannedSequence::NumNodesPlanned() const {
  const auto* tested = std::get_if<TestedChoice>(&tree.choice);
  return static_cast<float>(tested != nullptr ? tested->row_budget : tree.rows.num_nodes());
}

std::vector<PlannedSequence> PlanStep(std::span<const Guess> guesses, const StepPolicy& policy,
                                      const Experience& experience, const StepLimits& limits, Scheduler& scheduler) {
  std::vector<PlannedSequence> plan;
  plan.reserve(scheduler.running().size());
  for (const Guess& guess : guesses) {
    plan.push_back({.sequence = guess.sequence, .num_chain = 1, .tree = {.guess = guess.tree}});
  }
  PlanPrompts(scheduler, policy, experience.step_cost, limits, &plan);
  PlanTrees(policy, experience, limits, scheduler, &plan);
  return plan;
}

StepLoad ContextLoadOf(std::span<const PlannedSequence> plan) {
  StepLoad load;
  for (const PlannedSequence& planned : plan) {
    load.num_rows += planned.num_chain;
    load.num_positions += int64_t{planned.num_chain} * (planned.sequence->num_computed + planned.num_chain / 2);
  }
  return load;
}

float PromptMs(std::span<const PlannedSequence> plan, const StepCost& cost) {
  StepLoad decoding;
  for (const PlannedSequence& planned : plan) {
    if (!planned.sequence->decodes()) continue;
    ++decoding.num_rows;
    decoding.num_positions += planned.sequence->num_computed;
  }
  const float step_ms = cost.Predict(ContextLoadOf(plan));
  return decoding.num_rows == 0 ? step_ms : step_ms - cost.Predict(decoding);
}

StepLoad LoadOf(std::span<const PlannedSequence> plan) {
  StepLoad load = ContextLoadOf(plan);
  for (const PlannedSequence& planned : plan) {
    const int32_t num_nodes = planned.tree.rows.num_nodes();
    load.num_rows += num_nodes;
    load.num_positions += int64_t{num_nodes} * planned.sequence->num_computed;
  }
  return load;
}

}  // namespace foretoken::verifier
