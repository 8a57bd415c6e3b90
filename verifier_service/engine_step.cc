// SPDX-License-Identifier: Apache-2.0
// A step of the engine, stage by stage.
#include <algorithm>
#include <utility>

#include "absl/container/fixed_array.h"
#include "verifier_service/commit.h"
#include "verifier_service/engine.h"
#include "verifier_service/planner.h"

namespace foretoken::verifier {
namespace {

// Every so many steps the planner looks where its memory may be wrong.
constexpr uint64_t kCuriousEvery = 32;
// Weight of the newest value in the moving means.
constexpr double kNewest = 0.1;
// A wait for proposals ends after this part of a step.
constexpr double kMaxWaitPart = 0.25;
// How many nodes proposers are asked for, from how many are taken.
constexpr int32_t kSpareNodes = 4;
constexpr float kSparePart = 1.5f;
constexpr float kKeptNodes = 0.9f;  // of the usual number, in a step that takes fewer
// A prompt that is scored has this many rows in a step: each of them is a row of logits.
constexpr int32_t kMaxScoredRows = 64;

// How deep the deepest node stands below the root.
int32_t Depth(const speculation::TokenTree& tree) {
  absl::FixedArray<int32_t, 64> depths(tree.token_ids.size());
  int32_t deepest = 0;
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const int32_t parent = tree.parents[node];
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
  return !output.token_ids.empty() || !output.text.empty() || output.prompt.has_value() || !output.steps.empty() ||
         output.completion.has_value();
}

}  // namespace

bool Engine::Step() {
  if (scheduler_.running().empty()) last_event_ = parts_.now();  // nobody's time goes by while there is nothing to do
  TakeInbox();
  Admit();
  if (scheduler_.running().empty()) {
    cycle_began_.reset();
  } else {
    Gather();
    std::vector<PlannedSequence> plan = Plan();
    StepForecast forecast = Forecast(plan, step_cost_);
    forecast.is_curious = is_curious_;
    const TreeBatch batch = BuildTreeBatch(plan);
    std::vector<kernels::AcceptedPath> paths = Launch(plan, batch);
    Commit(plan, batch, std::move(paths));
    Account(forecast, plan);
  }
  Publish();
  return !scheduler_.running().empty() || !scheduler_.waiting().empty();
}

void Engine::Admit() {
  Retire();
  for (Sequence* sequence : scheduler_.Admit()) {
    sequence->active->place.reset();
    if (sequence->num_generated() == 0) {
      sequence->usage.num_cached_tokens = sequence->num_computed;
      own_stats_.num_cached_tokens += sequence->num_computed;
    }
    if (sequence->active->max_tree_nodes > 0 && !sequence->is_open) OpenAtProposers(*sequence);
  }
  scheduler_.ReserveRoots();
}

void Engine::OpenAtProposers(Sequence& sequence) {
  const GenerationRequest& request = sequence.request();
  parts_.proposers->Open({.sequence_id = sequence.id,
                          .token_ids = sequence.token_ids,
                          .rule = request.verification,
                          .seed = sequence.sampling.seed,
                          .sample_index = sequence.sampling.sample_index,
                          .temperature = sequence.sampling.temperature,
                          .top_k = sequence.sampling.top_k,
                          .top_p = sequence.sampling.top_p,
                          .min_p = sequence.sampling.min_p,
                          .tenant = request.tenant,
                          .traceparent = request.traceparent,
                          .allowed_proposers = request.speculation.proposers,
                          .told_proposers = AskedOf(sequence)});
  sequence.is_open = true;
}

void Engine::Gather() {
  own_stats_.times.host_ms += ElapsedMs();
  for (Proposal& proposal : parts_.proposers->TakeProposals(Patience())) {
    const auto sequence = sequences_.find(proposal.sequence_id);
    if (sequence == sequences_.end()) continue;                                              // it ended meanwhile
    if (proposal.tree.position > static_cast<uint64_t>(sequence->second->size())) continue;  // about tokens never said
    sequence->second->guess_positions[proposal.proposer_idx] = proposal.tree.position;
    sequence->second->guesses[proposal.proposer_idx] = std::move(proposal.tree);
  }
  const double wait_ms = ElapsedMs();
  own_stats_.times.wait_ms += wait_ms;
  if (waits_for_proposals_) ++own_stats_.planner.num_waits;
  if (waits_for_proposals_) wait_cost_ms_ += kNewest * (wait_ms - wait_cost_ms_);
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
  const StepLoad decoding = LoadOf(plan);
  int32_t num_prompt_rows = PromptRows(decoding, config_.max_step_rows, config_.max_inter_token_growth, step_cost_);
  if (is_curious_) {
    const int32_t next_rows = step_cost_.NextBucket(decoding.num_rows + num_prompt_rows);
    num_prompt_rows = std::max(num_prompt_rows, next_rows - decoding.num_rows);
  }
  for (const auto& sequence : scheduler_.running()) {
    if (sequence->decodes() || num_prompt_rows <= 0) continue;
    const bool is_scored = sequence->request().output.num_prompt_logprobs.has_value() && !sequence->prompt_reported;
    int32_t num_chain = std::min(sequence->size() - sequence->num_computed, num_prompt_rows);
    if (is_scored) num_chain = std::min(num_chain, kMaxScoredRows);
    plan.push_back({.sequence = sequence.get(), .num_chain = num_chain});
    num_prompt_rows -= num_chain;
  }
  PlanTrees(&plan);
  return plan;
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

std::vector<kernels::AcceptedPath> Engine::Launch(std::span<const PlannedSequence> plan, const TreeBatch& batch) {
  own_stats_.times.host_ms += ElapsedMs();
  kernels::Backend& backend = parts_.transformer->backend();
  logits_ = parts_.transformer->Forward(batch.forward, parts_.kv->view);
  const double forward_ms = ElapsedMs();
  std::vector<kernels::AcceptedPath> paths(batch.trees.size());
  backend.AcceptTrees({.logits = logits_, .num_tokens = NumTokens(), .trees = batch.trees, .paths = paths});
  backend.Synchronize();
  const double draw_ms = ElapsedMs();
  last_step_ms_ = forward_ms + draw_ms;
  const StepLoad load = LoadOf(plan);
  predicted_ms_ = step_cost_.Predict(load);
  // While plain steps are compared the measure that they are compared by stays as it is.
  if (!asked_.is_plain) step_cost_.Observe(load, static_cast<float>(last_step_ms_));
  own_stats_.times.forward_ms += forward_ms;
  own_stats_.times.draw_ms += draw_ms;
  return paths;
}

void Engine::Commit(std::span<PlannedSequence> plan, const TreeBatch& batch, std::vector<kernels::AcceptedPath> paths) {
  ScorePrompts(plan, batch);
  CountRows(plan, batch);
  std::vector<kernels::KvMove> moves;
  moves.reserve(batch.forward.logit_rows.size());
  for (const PlannedSequence& planned : plan) {
    if (!planned.draws()) CommitChunk(planned);
  }
  int32_t num_roots = 0, num_guessed = 0;  // of sequences that proposers know; and tokens guessed right
  for (size_t i = 0; i < paths.size(); ++i) {
    PlannedSequence& planned = plan[batch.planned_idx[i]];
    Sequence& sequence = *planned.sequence;
    if (sequence.is_finished) continue;  // its request failed at another sample
    planned.num_committed = CommitPath(planned, paths[i], &moves);
    CountAccepted(planned.tree, std::span<const int32_t>(paths[i].node_idx).first(planned.num_committed));
    if (sequence.is_open) ++num_roots;
    if (!asked_.is_plain) sequence.usual_nodes = std::max(planned.NumNodesPlanned(), kKeptNodes * sequence.usual_nodes);
    if (planned.guess != nullptr) num_guessed += Learn(planned, planned.committed());
    // A row counts where plain decoding would have come to it: not beyond a sample's end.
    const kernels::DrawStatus status = paths[i].status;
    if (status != kernels::DrawStatus::kOk && !sequence.is_finished) Fail(sequence.active.get(), status);
  }
  if (waits_for_proposals_ && num_roots > 0 && !asked_.is_plain) {
    gain_ += kNewest * (static_cast<double>(num_guessed) / num_roots - gain_);
  }
  EndCycle(plan);
  AdvanceProposers(plan);
  own_stats_.times.host_ms += ElapsedMs();
  if (!moves.empty()) parts_.transformer->backend().MoveKv({.kv = parts_.kv->view, .moves = moves});
  own_stats_.times.draw_ms += ElapsedMs();
  for (PlannedSequence& planned : plan) {
    ReportPrompt(*planned.sequence);
    scheduler_.GiveBack(planned.tree_slots);
    scheduler_.Settle(*planned.sequence);
  }
  scheduler_.KeepFree();
}

void Engine::CountAccepted(const speculation::TokenTree& tree, std::span<const int32_t> path_nodes) {
  num_emitted_ += static_cast<int32_t>(path_nodes.size());
  for (const int32_t row : path_nodes) {
    if (row > 0) accepted_by_.push_back(tree.proposers[row - 1]);  // row 0 is the root's own
  }
}

void Engine::EndCycle(std::span<const PlannedSequence> plan) {
  own_stats_.num_generated_tokens += num_emitted_;
  const absl::Time now = parts_.now();
  const auto is_asked_always = [](const PlannedSequence& planned) {
    return planned.sequence->request().speculation.mode == SpeculationMode::kAlways;
  };
  if (cycle_began_.has_value() && std::none_of(plan.begin(), plan.end(), is_asked_always)) {
    const double cycle_ms = absl::ToDoubleMilliseconds(now - *cycle_began_);
    between_ms_ += kNewest * (cycle_ms - last_step_ms_ - between_ms_);
    ask_policy_.Observe({.cycle_ms = cycle_ms,
                         .predicted_ms = predicted_ms_,
                         .num_emitted = num_emitted_,
                         .accepted_by = accepted_by_});
  }
  cycle_began_ = now;
  num_emitted_ = 0;
  accepted_by_.clear();

  const auto guesses = [](const auto& sequence) { return sequence->is_open && !sequence->is_finished; };
  const auto num_guessing =
      static_cast<int32_t>(std::count_if(scheduler_.running().begin(), scheduler_.running().end(), guesses));
  asked_ = ask_policy_.Choose(num_guessing);
  is_curious_ = ++step_idx_ % kCuriousEvery == 0;
  // To wait pays where the tokens that guesses win are worth more of a step than the wait costs.
  const bool is_wait_worth_it = is_curious_ || asked_.is_trial || gain_ * last_step_ms_ > wait_cost_ms_;
  waits_for_proposals_ = num_guessing > 0 && asked_.proposers != 0 && is_wait_worth_it;
}

absl::Duration Engine::Patience() const {
  return waits_for_proposals_ ? absl::Milliseconds(kMaxWaitPart * last_step_ms_) : absl::ZeroDuration();
}

int32_t Engine::NodesToAskFor(const Sequence& sequence) {
  const int32_t max_nodes = sequence.active->max_tree_nodes;
  if (sequence.request().speculation.mode == SpeculationMode::kAlways) return max_nodes;
  // Some more than the planner is going to take, so that it has a choice and can take more. A proposer grows first what
  // it is about to send and what may follow it, so what is sent in vain is grown in vain.
  return std::min(max_nodes, kSpareNodes + static_cast<int32_t>(kSparePart * sequence.usual_nodes));
}

uint32_t Engine::AskedOf(const Sequence& sequence) const {
  return sequence.request().speculation.mode == SpeculationMode::kAlways ? ~0u : asked_.proposers;
}

void Engine::AdvanceProposers(std::span<const PlannedSequence> plan) {
  for (const PlannedSequence& planned : plan) {
    const Sequence& sequence = *planned.sequence;
    if (!sequence.is_open || planned.num_committed == 0) continue;
    Ask ask;  // of a finished sequence nobody is asked
    if (!sequence.is_finished) ask = {.node_budget = NodesToAskFor(sequence), .proposers = AskedOf(sequence)};
    parts_.proposers->Advance(sequence.id, planned.committed(), ask);
  }
}

int32_t Engine::Learn(const PlannedSequence& planned, std::span<const int32_t> committed) {
  if (planned.rule() == kernels::VerificationRule::kKeyedDraw) return calibration_.Observe(*planned.guess, committed);
  std::vector<int32_t> ranks;
  const std::vector<int32_t> path = speculation::MatchedPath(*planned.guess, committed);
  for (const int32_t node : path) {
    const auto best = std::find(planned.best_node_idx.begin(), planned.best_node_idx.end(), node);
    if (best != planned.best_node_idx.end())
      ranks.push_back(static_cast<int32_t>(best - planned.best_node_idx.begin()));
  }
  rank_chances_.Observe(planned.row_budget, ranks);
  return static_cast<int32_t>(path.size());
}

void Engine::ScorePrompts(std::span<const PlannedSequence> plan, const TreeBatch& batch) {
  for (const PromptScore& score : batch.prompt_scores) {
    Sequence& sequence = *plan[score.planned_idx].sequence;
    std::vector<kernels::RowLogprobs> scores(score.token_ids.size());
    parts_.transformer->backend().ScoreTokens({.logits = logits_,
                                               .num_tokens = NumTokens(),
                                               .first_row = score.first_logit_row,
                                               .token_ids = score.token_ids,
                                               .num_top = *sequence.request().output.num_prompt_logprobs,
                                               .scores = scores});
    std::move(scores.begin(), scores.end(), std::back_inserter(sequence.prompt_logprobs));
  }
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

void Engine::Fail(ActiveRequest* active, kernels::DrawStatus status) {
  absl::Status error = status == kernels::DrawStatus::kNonFiniteLogits
                           ? absl::InternalError("the model's logits are not finite")
                           : absl::InvalidArgumentError("sampling: the parameters leave no token that could be drawn");
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->active.get() != active) continue;
    sequence->is_finished = true;
    TakeOutput(*sequence);  // what was said before
  }
  outputs_.push_back({.ticket = active->request.ticket, .error = std::move(error)});
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
    if (--sequence.active->num_unfinished == 0) {
      absl::MutexLock lock(&mutex_);
      tickets_.erase(sequence.request().request_id);
    }
  });
}

void Engine::Publish() {
  Retire();
  parts_.proposers->Flush({.patience = Patience(), .step = absl::Milliseconds(last_step_ms_)});
  outputs_.reserve(outputs_.size() + scheduler_.running().size());
  for (const auto& sequence : scheduler_.running()) TakeOutput(*sequence);
  own_stats_.num_running = static_cast<int32_t>(scheduler_.running().size());
  own_stats_.num_free_blocks = scheduler_.pool().num_free();
  own_stats_.num_cached_blocks = scheduler_.pool().num_cached();
  own_stats_.num_preemptions = scheduler_.num_preemptions();
  {
    absl::MutexLock lock(&mutex_);
    stats_ = own_stats_;
  }
  if (!outputs_.empty()) parts_.publish(std::exchange(outputs_, {}));
}

double Engine::ElapsedMs() {
  const absl::Time now = parts_.now();
  return absl::ToDoubleMilliseconds(now - std::exchange(last_event_, now));
}

}  // namespace foretoken::verifier
