// SPDX-License-Identifier: Apache-2.0
// The half of Engine that runs a step, stage by stage.
#include <algorithm>
#include <utility>

#include "common/base/error_text.h"
#include "kernels/check.h"
#include "verifier_service/engine/commit.h"
#include "verifier_service/engine/engine.h"
#include "verifier_service/engine/gather.h"
#include "verifier_service/engine/report_step.h"
#include "verifier_service/engine/step_forecast.h"

namespace foretoken::verifier {
namespace {

// The engine waits for proposals for at most this part of a step's expected time.
constexpr double kMaxWaitPart = 0.25;
// The engine asks proposers for kSparePart times the nodes that the planner takes lately, plus kSpareNodes.
constexpr int32_t kSpareNodes = 4;
constexpr float kSparePart = 1.5f;
constexpr float kKeptNodes = 0.9f;  // a step with fewer nodes lowers the usual number by at most this factor

absl::Duration Patience(const StepPolicy& policy) {
  return policy.waits ? absl::Milliseconds(kMaxWaitPart * policy.expected_step_ms) : absl::ZeroDuration();
}

bool AsksInAnyCase(const Sequence& sequence) {
  return sequence.is_open && sequence.request().speculation.mode == SpeculationMode::kAlways;
}

uint32_t AskedOf(const Sequence& sequence, const StepPolicy& policy) {
  return sequence.request().speculation.mode == SpeculationMode::kAlways ? ~0u : policy.proposers;
}

// Asks for somewhat more nodes than the planner is likely to take, so that the planner has a choice and can take more.
// Does not ask for many more, because a proposer spends time on every node that it sends.
int32_t NodesToAskFor(const Sequence& sequence) {
  const int32_t max_nodes = sequence.active->max_tree_nodes;
  if (sequence.request().speculation.mode == SpeculationMode::kAlways) return max_nodes;
  return std::min(max_nodes, kSpareNodes + static_cast<int32_t>(kSparePart * sequence.usual_nodes));
}

absl::Status ErrorOf(kernels::DrawStatus status) {
  if (status == kernels::DrawStatus::kOk) return absl::OkStatus();
  if (status == kernels::DrawStatus::kNonFiniteLogits) {
    return base::WithReason(absl::InternalError("the model's logits are not finite"), "LOGITS_NOT_FINITE");
  }
  return base::WithField(
      base::WithReason(absl::InvalidArgumentError("sampling: the parameters leave no token that could be drawn"),
                       "NO_TOKEN_TO_DRAW"),
      "sampling");
}

bool HasNews(const SampleOutput& output) {
  return output.began.has_value() || !output.token_ids.empty() || !output.text.empty() || output.prompt.has_value() ||
         !output.steps.empty() || output.completion.has_value();
}

}  // namespace

bool Engine::Step() {
  timer_.Enter(StepPhase::kHost);
  if (scheduler_.running().empty()) cycle_began_.reset();
  TakeInbox();
  Admit();
  if (!scheduler_.running().empty()) {
    const StepPolicy policy = policy_;
    if (policy.waits) Publish();  // the step waits for proposers anyway
    const std::vector<Guess> guesses = Gather(policy);
    std::vector<PlannedSequence> plan = Plan(guesses, policy);
    const StepForecast forecast = Forecast(plan, policy, experience_.step_cost);
    LaunchedStep launched = Launch(plan);
    Prepare();
    StepResult result = Finish(plan, policy, std::move(launched));
    const StepOutcome outcome = Commit(plan, policy, std::move(result));
    policy_ = Decide(plan, forecast, outcome);
    Advance(plan, outcome, policy_);
    Account(plan, policy, forecast, outcome);
  }
  EndStep();
  const bool is_running = !scheduler_.running().empty();
  // With an asynchronous device the next step's Prepare publishes these outputs while the device computes. A
  // synchronous device would delay them by a whole forward pass, so they are published now.
  if (!is_asynchronous() || !is_running) Publish();
  if (!is_running) timer_.Enter(StepPhase::kIdle);
  return is_running || scheduler_.has_waiting();
}

void Engine::OpenAtProposers(Sequence& sequence, const StepPolicy& policy) {
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
                          .tracestate = request.tracestate,
                          .proposers = sequence.active->allowed_proposers,
                          .told_proposers = AskedOf(sequence, policy),
                          .allowed_tokens = AllowedTokens(sequence)});
  sequence.is_open = true;
}

std::vector<Guess> Engine::Gather(const StepPolicy& policy) {
  timer_.Enter(StepPhase::kProposals);
  std::vector<Proposal> proposals = parts_.proposers->TakeProposals(Patience(policy));
  timer_.Enter(StepPhase::kHost);
  if (policy.waits) ++own_stats_.planner.num_waits;
  for (Proposal& proposal : proposals) {
    FT_CHECK(speculation::HasParentsFirst(proposal.tree));  // later stages rely on this order without a check
    Sequence* const sequence = requests_.FindSample(proposal.sequence_id);
    if (sequence == nullptr) continue;                                               // the sequence has ended
    if (proposal.tree.position > static_cast<uint64_t>(sequence->size())) continue;  // has uncommitted tokens
    sequence->guess_origins[proposal.proposer_idx] = {.position = proposal.tree.position,
                                                      .num_predicted_features = proposal.tree.num_predicted_features,
                                                      .asked = proposal.asked,
                                                      .arrived = proposal.arrived};
    sequence->guesses[proposal.proposer_idx] = std::move(proposal.tree);
  }
  own_stats_.num_sat_out += static_cast<uint64_t>(mask_turns_.Give(scheduler_));
  return MergeGuesses(scheduler_.running());
}

std::vector<PlannedSequence> Engine::Plan(std::span<const Guess> guesses, const StepPolicy& policy) {
  return PlanStep(guesses, policy, experience_, {.max_rows = config_.max_step_rows, .prompts = config_.prompts},
                  scheduler_);
}

Engine::LaunchedStep Engine::Launch(std::span<const PlannedSequence> plan) {
  LaunchedStep step = {.batch = BuildTreeBatch(plan)};
  step.paths.resize(step.batch.trees.size());
  step.scores.reserve(step.batch.prompt_scores.size());
  for (const PromptScore& score : step.batch.prompt_scores) step.scores.emplace_back(score.token_ids.size());
  kernels::Backend& backend = parts_.transformer->backend();
  timer_.Enter(StepPhase::kForward);
  const kernels::ConstTensorView logits = parts_.transformer->Forward(step.batch.forward, *parts_.kv);
  timer_.Enter(StepPhase::kMasks);
  own_stats_.num_masks += static_cast<uint64_t>(grammar_masks_.Fill(plan, backend, step.batch));
  timer_.Enter(StepPhase::kDraw);
  backend.AcceptTrees(
      {.logits = logits, .num_tokens = drawable_.num_tokens(), .trees = step.batch.trees, .paths = step.paths});
  for (size_t i = 0; i < step.scores.size(); ++i) {
    const PromptScore& score = step.batch.prompt_scores[i];
    backend.ScoreTokens({.logits = logits,
                         .first_row = score.first_logit_row,
                         .token_ids = score.token_ids,
                         .num_top = score.num_top,
                         .scores = step.scores[i]});
  }
  timer_.Enter(StepPhase::kPrepare);
  return step;
}

// Host work while the device computes this step. Publishes the outputs of the last step, and admits new requests for
// the next one.
void Engine::Prepare() {
  Publish();
  TakeRequests();
  AdmitWaiting();
}

Engine::StepResult Engine::Finish(std::span<const PlannedSequence> plan, const StepPolicy& policy, LaunchedStep step) {
  timer_.Enter(StepPhase::kDevice);
  parts_.transformer->Synchronize();
  timer_.Enter(StepPhase::kHost);
  const StepTimes times = Times();
  StepResult result = {.batch = std::move(step.batch),
                       .paths = std::move(step.paths),
                       .scores = std::move(step.scores),
                       .step_ms = times.forward_ms + times.draw_ms};
  // If Prepare took longer than the wait after it, the device may have finished earlier, so the measured time is not
  // the device's. The steps of a trial must not change the cost curve, because the trial compares its sets by the
  // curve's predictions.
  const bool is_the_devices = !is_asynchronous() || timer_.ms(StepPhase::kDevice) >= PrepareMs();
  if (is_the_devices) {
    const StepLoad load = LoadOf(plan);
    if (!policy.is_trial) experience_.step_cost.Observe(load, static_cast<float>(result.step_ms));
    forecast_.ObserveStep(load.num_rows, absl::Milliseconds(result.step_ms));
  }
  // Padding of the model's rows may be among a row's most likely ids. Such an id is not a token, so it is removed.
  const auto keep_tokens = [this](std::vector<kernels::RowLogprobs>& rows) {
    const auto is_padding = [this](const kernels::TokenLogprob& top) { return !drawable_.Contains(top.token_id); };
    for (kernels::RowLogprobs& row : rows) std::erase_if(row.top, is_padding);
  };
  for (kernels::AcceptedPath& path : result.paths) keep_tokens(path.logprobs);
  for (std::vector<kernels::RowLogprobs>& scores : result.scores) keep_tokens(scores);
  return result;
}

Engine::StepOutcome Engine::Commit(std::span<PlannedSequence> plan, const StepPolicy& policy, StepResult result) {
  StepOutcome outcome = {.num_committed = std::vector<int32_t>(plan.size()), .step_ms = result.step_ms};
  const TreeBatch& batch = result.batch;
  for (size_t i = 0; i < batch.prompt_scores.size(); ++i) {
    Sequence& sequence = *plan[batch.prompt_scores[i].planned_idx].sequence;
    std::ranges::move(result.scores[i], std::back_inserter(sequence.prompt_logprobs));
  }
  CountRows(plan, batch);
  std::vector<kernels::KvMove> moves;
  moves.reserve(batch.forward.logit_rows.size());
  for (const PlannedSequence& planned : plan) {
    if (!planned.draws()) CommitChunk(*planned.sequence, planned.num_chain);
  }
  for (size_t i = 0; i < result.paths.size(); ++i) {
    const PlannedSequence& planned = plan[batch.planned_idx[i]];
    Sequence& sequence = *planned.sequence;
    if (sequence.is_finished) continue;  // another sample of the request failed
    const int32_t num_committed = CommitPath(sequence, planned.tree, result.paths[i], &moves);
    outcome.num_committed[batch.planned_idx[i]] = num_committed;
    outcome.num_emitted += num_committed;
    outcome.num_roots += sequence.is_open ? 1 : 0;
    outcome.num_trees += planned.NumNodesPlanned() > 0 ? 1 : 0;
    outcome.num_guessed += Learn(planned, std::span<const int32_t>(sequence.token_ids).last(num_committed));
    if (num_committed > 0) {
      sequence.first_token_at = std::min(sequence.first_token_at, timer_.entered());
      own_stats_.speculation.AddAcceptedLength(static_cast<size_t>(num_committed - 1), /*num_steps=*/1);
    }
    if (policy.proposers != 0) {
      sequence.usual_nodes = std::max(planned.NumNodesPlanned(), kKeptNodes * sequence.usual_nodes);
    }
    // An error behind the sample's end does not count, because plain decoding would not have reached its row.
    const kernels::DrawStatus status = result.paths[i].status;
    if (sequence.is_finished) continue;
    absl::Status error =
        CheckMasks(sequence, config_.max_mask_time, /*found_tokens=*/status != kernels::DrawStatus::kEmptySupport);
    if (error.ok()) error = ErrorOf(status);
    if (!error.ok()) Fail(*sequence.active, std::move(error));
  }
  timer_.Enter(StepPhase::kMove);
  if (!moves.empty()) parts_.transformer->MoveKv(*parts_.kv, moves);
  feature_planes_.Store(plan, batch, result.paths, outcome.num_committed, *parts_.proposers);
  timer_.Enter(StepPhase::kHost);
  for (PlannedSequence& planned : plan) {
    ReportPrompt(*planned.sequence);
    scheduler_.GiveBack(planned.tree.slots);
    scheduler_.CacheAndTrim(*planned.sequence);
  }
  scheduler_.KeepFree();
  return outcome;
}

// Returns the number of committed tokens that the tree had guessed.
int32_t Engine::Learn(const PlannedSequence& planned, std::span<const int32_t> committed) {
  if (planned.tree.guess == nullptr) return 0;
  const speculation::TokenTree& guess = *planned.tree.guess;
  const auto* tested = std::get_if<TestedChoice>(&planned.tree.choice);
  if (tested == nullptr) return experience_.calibration.Observe(guess, committed);
  std::vector<int32_t> places;
  const std::vector<int32_t> path = speculation::MatchedPath(guess, committed);
  for (const int32_t node : path) {
    const auto best = std::ranges::find(tested->best_node_idx, node);
    if (best != tested->best_node_idx.end()) {
      places.push_back(static_cast<int32_t>(best - tested->best_node_idx.begin()));
    }
  }
  experience_.place_chances.Observe(tested->row_budget, places);
  return static_cast<int32_t>(path.size());
}

StepPolicy Engine::Decide(std::span<const PlannedSequence> plan, const StepForecast& forecast,
                          const StepOutcome& outcome) {
  const absl::Time now = parts_.now();
  const auto began = std::exchange(cycle_began_, now);
  // A step without sequences that speculate says nothing about proposers. A step whose sequences all ask in any case
  // says nothing about the value of asking.
  const auto may_not_ask = [](const PlannedSequence& planned) {
    return planned.sequence->is_open && !AsksInAnyCase(*planned.sequence);
  };
  const bool is_comparable = began.has_value() && outcome.num_roots > 0 && std::ranges::any_of(plan, may_not_ask);
  // A sequence whose prompt ends in this step draws its first token, with and without proposers.
  const int32_t num_first_tokens = forecast.num_emitting - forecast.num_decoding;
  speculation_.Observe({.cycle_ms = began.has_value() ? absl::ToDoubleMilliseconds(now - *began) : 0,
                        .step_ms = outcome.step_ms,
                        .plain_ms = forecast.step_ms_without_trees,
                        .prompt_ms = forecast.prompt_ms,
                        .wait_ms = timer_.ms(StepPhase::kProposals),
                        .num_decoding = forecast.num_decoding,
                        .num_emitted = std::max(0, outcome.num_emitted - num_first_tokens),
                        .num_roots = outcome.num_roots,
                        .num_guessed = outcome.num_guessed,
                        .num_trees = outcome.num_trees,
                        .is_comparable = is_comparable});
  SpeculationDemand demand = {.may_try = false};
  for (const auto& sequence : scheduler_.running()) {
    if (!sequence->is_open || sequence->is_finished) continue;
    ++demand.num_sequences;
    demand.allowed |= sequence->active->allowed_proposers;
    demand.may_try = demand.may_try || !AsksInAnyCase(*sequence);
  }
  return speculation_.Decide(demand);
}

void Engine::Advance(std::span<const PlannedSequence> plan, const StepOutcome& outcome, const StepPolicy& policy) {
  for (size_t i = 0; i < plan.size(); ++i) {
    Sequence& sequence = *plan[i].sequence;
    if (!sequence.is_open || outcome.num_committed[i] == 0) continue;
    Ask ask;  // no proposer is asked for a finished sequence
    if (!sequence.is_finished) {
      ask = {.node_budget = NodesToAskFor(sequence),
             .proposers = AskedOf(sequence, policy),
             .allowed_tokens = AllowedTokens(sequence)};
    }
    parts_.proposers->Advance(sequence.id, std::span(sequence.token_ids).last(outcome.num_committed[i]), ask);
  }
}

void Engine::CountRows(std::span<const PlannedSequence> plan, const TreeBatch& batch) {
  ++own_stats_.num_steps;
  own_stats_.num_rows += batch.forward.num_rows();
  for (const PlannedSequence& planned : plan) {
    Sequence& sequence = *planned.sequence;
    if (planned.draws()) ++sequence.usage.num_steps;
    const auto num_prompt = static_cast<int32_t>(sequence.request().prompt.size());
    own_stats_.num_prompt_tokens += std::clamp(num_prompt - sequence.num_computed, 0, planned.num_chain);
  }
}

double Engine::PrepareMs() const { return timer_.ms(StepPhase::kMasks) + timer_.ms(StepPhase::kPrepare); }

StepTimes Engine::Times() const {
  // Prepare runs while an asynchronous device computes, so its time belongs to the forward pass.
  const double prepare_ms = PrepareMs();
  const bool is_behind = is_asynchronous();
  return {.forward_ms = timer_.ms(StepPhase::kForward) + timer_.ms(StepPhase::kDevice) + (is_behind ? prepare_ms : 0),
          .draw_ms = timer_.ms(StepPhase::kDraw) + timer_.ms(StepPhase::kMove),
          .host_ms = timer_.ms(StepPhase::kHost) + (is_behind ? 0 : prepare_ms),
          .wait_ms = timer_.ms(StepPhase::kProposals)};
}

// Counts the step, and reports it to the requests that ask. Host time after this point belongs to the next step.
void Engine::Account(std::span<const PlannedSequence> plan, const StepPolicy& policy, const StepForecast& forecast,
                     const StepOutcome& outcome) {
  timer_.Enter(StepPhase::kHost);
  const StepTimes times = Times();
  const double mask_ms = timer_.ms(StepPhase::kMasks);
  timer_.Clear();
  const StepPace pace = {.num_tokens = forecast.num_prompt_rows + outcome.num_emitted,
                         .ms = times.forward_ms + times.draw_ms + times.host_ms + times.wait_ms,
                         .hidden_ms = is_asynchronous() ? std::min<double>(mask_ms, forecast.step_ms) : 0};
  mask_turns_.Observe(scheduler_.running(), pace);
  ChargeMasks(pace, scheduler_);
  own_stats_.mask_time += absl::Milliseconds(mask_ms);
  own_stats_.times += times;
  own_stats_.num_generated_tokens += outcome.num_emitted;
  PlannerStats& planner = own_stats_.planner;
  CountStep(forecast, plan, &planner);
  CountTimes(forecast, times, outcome.num_emitted, &planner);
  planner.gain_tokens = speculation_.gain();
  planner.chances = experience_.calibration.counts();
  planner.asked_proposers = speculation_.asked();
  planner.num_trials = speculation_.num_trials();
  planner.last_trial_speedup = speculation_.last_trial_speedup();
  UpdateRowCosts(experience_.step_cost, &planner);
  for (const PlannedSequence& planned : plan) {
    Sequence& sequence = *planned.sequence;
    if (!sequence.request().speculation.reports_steps) continue;
    if (sequence.is_finished && !sequence.output.completion.has_value()) continue;  // the request failed
    sequence.output.steps.push_back(ReportOf({.step_idx = own_stats_.num_steps,
                                              .row_budget = config_.max_step_rows,
                                              .forecast = forecast,
                                              .times = times,
                                              .end = timer_.entered()},
                                             planned, AskedOf(sequence, policy),
                                             parts_.proposers->FindMissing(sequence.id), parts_.proposers->Names()));
    for (std::optional<GuessOrigin>& origin : sequence.guess_origins) {
      if (origin.has_value()) origin->is_reported = true;
    }
  }
}

void Engine::Fail(ActiveRequest& active, absl::Status error) {
  DropUnbegun(active);
  for (Sequence* sequence : active.sequences) {
    sequence->is_finished = true;
    TakeOutput(*sequence);  // the tokens before the error
  }
  outputs_.push_back({.ticket = active.request->ticket, .error = std::move(error)});
}

void Engine::TakeOutput(Sequence& sequence) {
  if (!HasNews(sequence.output)) return;
  sequence.num_text_bytes += static_cast<uint32_t>(sequence.output.text.size());
  sequence.output.ticket = sequence.request().ticket;
  sequence.output.sample_index = sequence.sample_index;
  sequence.output.time = timer_.entered();
  outputs_.push_back(std::move(sequence.output));
  sequence.output = {};
}

void Engine::Retire() {
  scheduler_.RemoveFinished([this](Sequence& sequence) {
    if (!sequence.was_preempted) forecast_.ObserveRun(sequence.num_generated(), timer_.entered() - sequence.began);
    TakeOutput(sequence);
    if (sequence.is_open) parts_.proposers->Close(sequence.id);
    sequence.speculation_counts.accepted_lengths.clear();  // every step has counted its own
    own_stats_.speculation.Add(sequence.speculation_counts);
    for (size_t i = 0; i < own_stats_.proposers.size(); ++i) {
      own_stats_.proposers[i].num_proposed += sequence.proposer_counts[i].num_proposed;
      own_stats_.proposers[i].num_accepted += sequence.proposer_counts[i].num_accepted;
    }
    requests_.Remove(sequence);
  });
}

// Sends the step's tokens to the proposers, collects the outputs, and updates the statistics.
void Engine::EndStep() {
  Retire();  // before Flush, so that proposers learn of ended sequences
  feature_planes_.Supply(*parts_.proposers, [this](SequenceId id) { return requests_.FindSample(id); });
  parts_.proposers->Flush({.patience = Patience(policy_), .step = absl::Milliseconds(policy_.expected_step_ms)});
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

}  // namespace foretoken::verifier
