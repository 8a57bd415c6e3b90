// SPDX-License-Identifier: Apache-2.0
// A step of the engine, stage by stage.
#include <algorithm>
#include <utility>

#include "absl/container/fixed_array.h"
#include "common/base/error_text.h"
#include "verifier_service/engine/commit.h"
#include "verifier_service/engine/engine.h"
#include "verifier_service/planner/planner.h"

namespace foretoken::verifier {
namespace {

// A prompt that is scored has this many rows in a step: each of them is a row of logits.
constexpr int32_t kMaxScoredRows = 64;

// How deep the deepest node stands below the root.
int32_t Depth(const speculation::TokenTree& tree) {
  absl::FixedArray<int32_t, 64> depths(tree.nodes.size());
  int32_t deepest = 0;
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const int32_t parent = tree.nodes[node].parent;
    depths[node] = parent == speculation::kRootParent ? 1 : depths[parent] + 1;
    deepest = std::max(deepest, depths[node]);
  }
  return deepest;
}

// Guesses beyond what a sample may still emit are of no use: its last token is drawn at the node before it.
int32_t MaxGuessDepth(const Sequence& sequence) {
  return sequence.request().stop.max_tokens - sequence.num_generated() - 1;
}

// What the request's prediction says, which is never late.
speculation::TokenTree PredictedTree(const Sequence& sequence) {
  const size_t proposer_idx = sequence.guesses.size() - 1;
  speculation::TokenTree tree = sequence.follower->Guess(sequence.active->max_tree_nodes, 1u << proposer_idx);
  tree.position = static_cast<uint64_t>(sequence.size());
  return tree;
}

bool HasNews(const SampleOutput& output) {
  return output.begins || !output.token_ids.empty() || !output.text.empty() || output.prompt.has_value() ||
         !output.steps.empty() || output.completion.has_value();
}

}  // namespace

bool Engine::Step() {
  if (scheduler_.running().empty()) {  // nobody's time goes by while there is nothing to do
    last_event_ = parts_.now();
    cycle_began_.reset();
  }
  TakeInbox();
  Admit();
  if (!scheduler_.running().empty()) {
    if (waits_for_proposals_) Publish();  // there is time for it
    Gather();
    std::vector<PlannedSequence> plan = Plan();
    forecast_ = Forecast(plan, step_cost_);
    forecast_.between_ms = static_cast<float>(between_ms_);
    forecast_.is_curious = is_curious_;
    const TreeBatch batch = BuildTreeBatch(plan);
    StepHandle step = Launch(batch);
    Prepare();
    FinishStep(plan, step);
    Commit(plan, batch, std::move(step));
    Account(plan);
  }
  EndStep();
  // Outputs wait for the next launch where the device then computes on its own, and not where that takes all of a step.
  if (!parts_.transformer->backend().is_asynchronous() || scheduler_.running().empty()) Publish();
  return !scheduler_.running().empty() || scheduler_.has_waiting();
}

void Engine::Admit() {
  Retire();
  scheduler_.ReserveRoots(last_event_);  // first, so that none begins only to be preempted at once
  AdmitWaiting();
}

void Engine::AdmitWaiting() {
  const auto begin_next = [this](const std::shared_ptr<ActiveRequest>& active) { return BeginNext(active); };
  for (Sequence* sequence : scheduler_.Admit(last_event_, begin_next)) {
    sequence->began = last_event_;
    if (sequence->num_generated() == 0) {
      sequence->usage.num_cached_tokens = sequence->num_computed;
      own_stats_.num_cached_tokens += sequence->num_computed;
    }
    if (sequence->active->max_tree_nodes > 0 && !sequence->is_open) OpenAtProposers(*sequence);
  }
}

const speculation::TokenTree* Engine::MergedGuess(Sequence& sequence) {
  if (sequence.follower.has_value()) sequence.guesses.back() = PredictedTree(sequence);
  std::vector<speculation::TokenTree*> trees;
  for (std::optional<speculation::TokenTree>& guess : sequence.guesses) {
    if (!guess.has_value()) continue;
    if (guess->position < static_cast<uint64_t>(sequence.size())) {
      guess = speculation::ReRoot(*guess, std::span<const int32_t>(sequence.token_ids).subspan(guess->position));
    }
    if (guess->num_nodes() > 0) trees.push_back(&*guess);
  }
  if (trees.empty()) return nullptr;
  const speculation::TokenTree* merged = trees.front();  // a valid tree is a trie already
  if (trees.size() > 1) {
    std::vector<speculation::TokenTree> copies;
    copies.reserve(trees.size());
    for (const speculation::TokenTree* tree : trees) copies.push_back(*tree);
    sequence.merged_guess = speculation::Merge(copies);
    merged = &sequence.merged_guess;
  }
  const int32_t max_depth = MaxGuessDepth(sequence);
  if (merged->num_nodes() > max_depth && Depth(*merged) > max_depth) {
    sequence.merged_guess = speculation::CutDepth(*merged, max_depth);
    merged = &sequence.merged_guess;
  }
  return merged->num_nodes() > 0 ? merged : nullptr;
}

std::vector<PlannedSequence> Engine::Plan() {
  std::vector<PlannedSequence> plan;
  plan.reserve(scheduler_.running().size());
  for (const auto& sequence : scheduler_.running()) {
    if (sequence->decodes()) plan.push_back({.sequence = sequence.get(), .num_chain = 1});
  }
  PlanPrompts(&plan);
  PlanTrees(&plan);
  return plan;
}

void Engine::PlanPrompts(std::vector<PlannedSequence>* plan) {
  std::vector<Sequence*> sequences;
  std::vector<WaitingPrompt> prompts;
  std::vector<absl::Time> first_tokens;
  for (const auto& sequence : scheduler_.running()) {
    if (sequence->decodes()) {
      first_tokens.push_back(sequence->first_token_at);
      continue;
    }
    const bool is_scored = sequence->request().output.num_prompt_logprobs.has_value() && !sequence->prompt_reported;
    const int32_t num_left = sequence->size() - sequence->num_computed;
    sequences.push_back(sequence.get());
    prompts.push_back({.num_left = num_left,
                       .max_rows = is_scored ? std::min(num_left, kMaxScoredRows) : num_left,
                       .priority = sequence->request().priority,
                       .began = sequence->began});
  }
  if (prompts.empty()) return;
  const PromptStep step = {.decoding = LoadOf(*plan), .first_tokens = first_tokens, .max_rows = config_.max_step_rows};
  int32_t num_rows = NumPromptRows(prompts, step, config_.prompts, step_cost_);
  if (is_curious_) {
    num_rows = std::max(num_rows, step_cost_.NextBucket(step.decoding.num_rows + num_rows) - step.decoding.num_rows);
  }
  const std::vector<int32_t> shares = SharePromptRows(prompts, num_rows);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (shares[i] > 0) plan->push_back({.sequence = sequences[i], .num_chain = shares[i]});
  }
}

void Engine::PlanTrees(std::vector<PlannedSequence>* plan) {
  std::vector<TreeOffer> offers;
  std::vector<PlannedSequence*> offering;
  offers.reserve(plan->size());
  offering.reserve(plan->size());
  int32_t num_emitting = 0;
  for (PlannedSequence& planned : *plan) {
    Sequence& sequence = *planned.sequence;
    if (planned.draws()) ++num_emitting;
    if (!sequence.decodes() || !sequence.is_open) continue;
    planned.guess = MergedGuess(sequence);
    if (planned.guess == nullptr) continue;
    const bool takes_all = sequence.request().speculation.mode == SpeculationMode::kAlways;
    // How many rows a rejection-sampled tree gets is not asked of the tree; see RankChances.
    const std::span<const float> ranks = rank_chances_.chances();
    offers.push_back({.path_chances = planned.rule() == kernels::VerificationRule::kKeyedDraw
                                          ? calibration_.PathChances(*planned.guess)
                                          : std::vector<float>(ranks.begin(), ranks.end()),
                      .max_nodes = asked_.is_plain && !takes_all ? 0 : sequence.active->max_tree_nodes,
                      .num_positions = sequence.size(),
                      .takes_all = takes_all});
    offering.push_back(&planned);
  }
  std::vector<std::vector<int32_t>> chosen = ChooseNodes(offers,
                                                         {.fixed = LoadOf(*plan),
                                                          .max_rows = config_.max_step_rows,
                                                          .num_emitting = num_emitting,
                                                          .between_ms = static_cast<float>(between_ms_),
                                                          .is_curious = is_curious_},
                                                         step_cost_);
  for (size_t i = 0; i < offering.size(); ++i) {
    PlannedSequence& planned = *offering[i];
    planned.path_chances = std::move(offers[i].path_chances);
    if (planned.rule() == kernels::VerificationRule::kKeyedDraw) {
      PlanTree(std::move(chosen[i]), planned);
    } else {
      PlanTestedTree(static_cast<int32_t>(chosen[i].size()), planned);
    }
  }
}

void Engine::PlanTree(std::vector<int32_t> node_idx, PlannedSequence& planned) {
  planned.row_node_idx = std::move(node_idx);
  planned.tree = speculation::Keep(*planned.guess, planned.row_node_idx);
  planned.tree_slots = scheduler_.ReserveTree(*planned.sequence, planned.tree.num_nodes(), Depth(planned.tree));
  const auto num_slots = static_cast<int32_t>(planned.tree_slots.slots.size());
  if (num_slots >= planned.tree.num_nodes()) return;
  std::vector<int32_t> best = speculation::BestNodeIdx(planned.tree, num_slots);
  std::sort(best.begin(), best.end());
  for (int32_t& node : best) node = planned.row_node_idx[node];
  planned.row_node_idx = std::move(best);
  planned.tree = speculation::Keep(*planned.guess, planned.row_node_idx);
}

void Engine::PlanTestedTree(int32_t num_nodes, PlannedSequence& planned) {
  // Slots are reserved as for the worst tree of so many nodes, a chain: what there is of them decides how many nodes
  // get rows, so it must not depend on this tree's form. Which nodes get them may: no node's rank depends on its
  // descendants.
  planned.tree_slots =
      scheduler_.ReserveTree(*planned.sequence, num_nodes, std::min(num_nodes, MaxGuessDepth(*planned.sequence)));
  planned.row_budget = static_cast<int32_t>(planned.tree_slots.slots.size());
  planned.best_node_idx = speculation::BestNodeIdx(*planned.guess, planned.row_budget + 1);
  const auto num_rows = std::min<size_t>(static_cast<size_t>(planned.row_budget), planned.best_node_idx.size());
  planned.row_node_idx.assign(planned.best_node_idx.begin(), planned.best_node_idx.begin() + num_rows);
  std::sort(planned.row_node_idx.begin(), planned.row_node_idx.end());
  planned.tree = speculation::Keep(*planned.guess, planned.row_node_idx);
  planned.tree_slots.slots.resize(num_rows);
}

Engine::StepHandle Engine::Launch(const TreeBatch& batch) {
  own_stats_.times.host_ms += ElapsedMs();
  kernels::Backend& backend = parts_.transformer->backend();
  const kernels::ConstTensorView logits = parts_.transformer->Forward(batch.forward, *parts_.kv);
  StepHandle step = {.forward_ms = ElapsedMs(), .paths = std::vector<kernels::AcceptedPath>(batch.trees.size())};
  backend.AcceptTrees(
      {.logits = logits, .num_tokens = drawable_.num_tokens(), .trees = batch.trees, .paths = step.paths});
  for (const PromptScore& score : batch.prompt_scores) {
    backend.ScoreTokens({.logits = logits,
                         .first_row = score.first_logit_row,
                         .token_ids = score.token_ids,
                         .num_top = score.num_top,
                         .scores = step.scores.emplace_back(score.token_ids.size())});
  }
  step.draw_ms = ElapsedMs();
  return step;
}

// Host work while the device computes this step: what is left of the last one, and what the next ones can have without
// this one's results.
void Engine::Prepare() {
  Publish();
  TakeRequests();
  AdmitWaiting();
}

void Engine::FinishStep(std::span<const PlannedSequence> plan, StepHandle& step) {
  const double prepare_ms = ElapsedMs();
  parts_.transformer->Synchronize();
  const double wait_ms = ElapsedMs();
  const bool is_behind = parts_.transformer->backend().is_asynchronous();
  (is_behind ? step.forward_ms : own_stats_.times.host_ms) += prepare_ms;  // behind, the device computed meanwhile
  step.forward_ms += wait_ms;
  last_step_ms_ = step.forward_ms + step.draw_ms;
  // Where the host prepared for longer than it then waited, the time may be the host's. And while ways to ask are
  // compared the measure that they are compared by stays as it is.
  const bool is_the_devices = !is_behind || wait_ms >= prepare_ms;
  if (is_the_devices && !asked_.is_trial) step_cost_.Observe(LoadOf(plan), static_cast<float>(last_step_ms_));
  own_stats_.times.forward_ms += step.forward_ms;
  own_stats_.times.draw_ms += step.draw_ms;
}

// A row's likely ids may be of padding; a client could do nothing with them.
void Engine::KeepTokens(std::span<kernels::RowLogprobs> rows) const {
  for (kernels::RowLogprobs& row : rows) {
    std::erase_if(row.top, [this](const kernels::TokenLogprob& top) { return !drawable_.Contains(top.token_id); });
  }
}

void Engine::Commit(std::span<PlannedSequence> plan, const TreeBatch& batch, StepHandle step) {
  for (std::vector<kernels::RowLogprobs>& scores : step.scores) KeepTokens(scores);
  for (kernels::AcceptedPath& path : step.paths) KeepTokens(path.logprobs);
  for (size_t i = 0; i < batch.prompt_scores.size(); ++i) {
    Sequence& sequence = *plan[batch.prompt_scores[i].planned_idx].sequence;
    std::ranges::move(step.scores[i], std::back_inserter(sequence.prompt_logprobs));
  }
  CountRows(plan, batch);
  std::vector<kernels::AcceptedPath>& paths = step.paths;
  std::vector<kernels::KvMove> moves;
  moves.reserve(batch.forward.logit_rows.size());
  for (const PlannedSequence& planned : plan) {
    if (!planned.draws()) CommitChunk(planned);
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    PlannedSequence& planned = plan[batch.planned_idx[i]];
    Sequence& sequence = *planned.sequence;
    if (sequence.is_finished) continue;  // its request failed at another sample
    planned.num_committed = CommitPath(planned, paths[i], &moves);
    if (planned.num_committed > 0) sequence.first_token_at = std::min(sequence.first_token_at, last_event_);
    TakeStock(planned, std::span<const int32_t>(paths[i].node_idx).first(planned.num_committed));
    // A row counts where plain decoding would have come to it: not beyond a sample's end.
    const kernels::DrawStatus status = paths[i].status;
    if (status != kernels::DrawStatus::kOk && !sequence.is_finished) Fail(*sequence.active, status);
  }
  EndCycle(plan);
  AdvanceProposers(plan);
  own_stats_.times.host_ms += ElapsedMs();
  if (!moves.empty()) parts_.transformer->MoveKv(*parts_.kv, moves);
  own_stats_.times.draw_ms += ElapsedMs();
  for (PlannedSequence& planned : plan) {
    ReportPrompt(*planned.sequence);
    scheduler_.GiveBack(planned.tree_slots);
    scheduler_.Settle(*planned.sequence);
  }
  scheduler_.KeepFree();
}

void Engine::CountRows(std::span<const PlannedSequence> plan, const TreeBatch& batch) {
  ++own_stats_.num_steps;
  own_stats_.num_rows += batch.forward.num_rows();
  for (const PlannedSequence& planned : plan) {
    Sequence& sequence = *planned.sequence;
    if (planned.draws()) ++sequence.usage.num_steps;
    if (!sequence.decodes()) own_stats_.num_prompt_tokens += planned.num_chain;
  }
}

void Engine::Fail(ActiveRequest& active, kernels::DrawStatus status) {
  absl::Status error =
      status == kernels::DrawStatus::kNonFiniteLogits
          ? base::WithReason(absl::InternalError("the model's logits are not finite"), "LOGITS_NOT_FINITE")
          : base::WithReason(absl::InvalidArgumentError("sampling: the parameters leave no token that could be drawn"),
                             "NO_TOKEN_TO_DRAW");
  DropUnbegun(active);
  for (Sequence* sequence : active.sequences) {
    sequence->is_finished = true;
    TakeOutput(*sequence);  // what was said before
  }
  outputs_.push_back({.ticket = active.request->ticket, .error = std::move(error)});
}

void Engine::TakeOutput(Sequence& sequence) {
  if (!HasNews(sequence.output)) return;
  sequence.num_text_bytes += static_cast<uint32_t>(sequence.output.text.size());
  sequence.output.ticket = sequence.request().ticket;
  sequence.output.sample_index = sequence.sample_index;
  outputs_.push_back(std::move(sequence.output));
  sequence.output = {};
}

void Engine::Retire() {
  scheduler_.RemoveFinished([this](Sequence& sequence) {
    TakeOutput(sequence);
    if (sequence.is_open) parts_.proposers->Close(sequence.id);
    sequences_.erase(sequence.id);
    own_stats_.speculation.Add(sequence.speculation_counts);
    for (size_t i = 0; i < own_stats_.proposers.size(); ++i) {
      own_stats_.proposers[i].num_proposed += sequence.proposer_counts[i].num_proposed;
      own_stats_.proposers[i].num_accepted += sequence.proposer_counts[i].num_accepted;
    }
    std::erase(sequence.active->sequences, &sequence);
    if (--sequence.active->num_unfinished == 0) Forget(*sequence.active);
  });
}

// What the step brought is said to proposers, and is ready to be told to clients and to whoever asks for statistics.
void Engine::EndStep() {
  Retire();  // proposers hear of ends, too
  parts_.proposers->Flush({.patience = Patience(), .step = absl::Milliseconds(last_step_ms_)});
  outputs_.reserve(outputs_.size() + scheduler_.running().size());
  for (const auto& sequence : scheduler_.running()) TakeOutput(*sequence);
  own_stats_.num_running = static_cast<int32_t>(scheduler_.running().size());
  own_stats_.num_free_blocks = scheduler_.pool().num_free();
  own_stats_.num_cached_blocks = scheduler_.pool().num_cached();
  own_stats_.num_preemptions = scheduler_.num_preemptions();
  own_stats_.num_preempted = scheduler_.num_preempted();
  absl::MutexLock lock(&mutex_);
  stats_ = own_stats_;
}

void Engine::Publish() {
  if (!outputs_.empty()) parts_.publish(std::exchange(outputs_, {}));
}

double Engine::ElapsedMs() {
  const absl::Time now = parts_.now();
  return absl::ToDoubleMilliseconds(now - std::exchange(last_event_, now));
}

}  // namespace foretoken::verifier
