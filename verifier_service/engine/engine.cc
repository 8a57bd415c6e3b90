// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/engine.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "kernels/check.h"
#include "verifier_service/engine/commit.h"
#include "verifier_service/engine/report_step.h"

namespace foretoken::verifier {
namespace {

// What is learned of rows before serving: with a large model it must not take long.
constexpr int32_t kMaxLearnedRows = 64;
constexpr int32_t kFewRows = 16;  // of a small tree: whoever waits, their cost is learned
constexpr int kLearningRounds = 4;
constexpr absl::Duration kMaxLearning = absl::Seconds(3);

constexpr absl::Duration kMinPriorityAging = absl::Milliseconds(1);
constexpr absl::Duration kMaxPriorityAging = absl::Hours(24);

absl::Status AtLeast(absl::string_view field, int64_t minimum, int64_t value) {
  if (value >= minimum) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected at least ", minimum, ", got ", value));
}

}  // namespace

absl::Status Validate(const EngineConfig& config) {
  FT_RETURN_IF_ERROR(AtLeast("max_queued_requests", 1, config.max_queued_requests));
  FT_RETURN_IF_ERROR(AtLeast("max_queued_samples", 1, config.max_queued_samples));
  FT_RETURN_IF_ERROR(AtLeast("max_queued_tokens", 1, config.max_queued_tokens));
  if (config.priority_aging < kMinPriorityAging || config.priority_aging > kMaxPriorityAging) {
    return absl::InvalidArgumentError(absl::StrCat("priority_aging: expected ", absl::FormatDuration(kMinPriorityAging),
                                                   " to ", absl::FormatDuration(kMaxPriorityAging), ", got ",
                                                   absl::FormatDuration(config.priority_aging)));
  }
  FT_RETURN_IF_ERROR(AtLeast("max_running_samples", 1, config.max_running_samples));
  FT_RETURN_IF_ERROR(AtLeast("max_step_rows", config.max_running_samples, config.max_step_rows));
  FT_RETURN_IF_ERROR(AtLeast("max_tree_nodes", 0, config.max_tree_nodes));
  if (config.max_tree_nodes > speculation::kMaxTreeNodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tree_nodes: expected at most ", speculation::kMaxTreeNodes, ", got ", config.max_tree_nodes));
  }
  const PromptLimits& prompts = config.prompts;
  if (!(prompts.max_inter_token_growth >= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_inter_token_growth: expected at least 1, got ", prompts.max_inter_token_growth));
  }
  FT_RETURN_IF_ERROR(AtLeast("max_burst_prompt_tokens", 0, prompts.max_burst_prompt_tokens));
  if (prompts.burst_window < absl::ZeroDuration() || prompts.burst_window > absl::Hours(1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("burst_window: expected 0 to 1h, got ", absl::FormatDuration(prompts.burst_window)));
  }
  return absl::OkStatus();
}

Engine::Engine(const EngineConfig& config, EngineParts parts)
    : config_(config),
      parts_(std::move(parts)),
      max_context_tokens_(
          std::min(parts_.transformer->options().max_positions, parts_.kv->num_blocks * kernels::kKvBlockSize)),
      drawable_(parts_.tokenizer->vocabulary(), parts_.transformer->config().vocab_size, parts_.transformer->backend()),
      queue_({.num_requests = config.max_queued_requests,
              .num_samples = config.max_queued_samples,
              .num_tokens = config.max_queued_tokens}),
      scheduler_({.max_running = config.max_running_samples,
                  .enable_prefix_cache = config.enable_prefix_cache,
                  .max_tree_nodes = config.max_tree_nodes,
                  .priority_aging = config.priority_aging},
                 parts_.kv->num_blocks),
      step_cost_(config.max_step_rows),
      calibration_(parts_.proposers->Names().size() + 1),
      rank_chances_(config.max_tree_nodes),
      ask_policy_(parts_.proposers->Names().size()),
      last_event_(parts_.now()) {
  FT_CHECK(config.max_step_rows <= parts_.transformer->options().max_rows);
  FT_CHECK(config.max_step_rows <= parts_.transformer->options().max_logit_rows);
  own_stats_.proposers = NoCounts(parts_.proposers->Names());
  own_stats_.planner = PlannerStats(config.max_step_rows);
  own_stats_.num_blocks = parts_.kv->num_blocks;
  own_stats_.num_free_blocks = scheduler_.pool().num_free();
  stats_ = own_stats_;
}

Engine::~Engine() { Stop(); }

void Engine::Start() {
  thread_ = std::thread([this] { Run(); });
  is_ready_.WaitForNotification();
}

// What a pass takes that many rows long. K/V blocks that hold nothing yet serve as one long context; what is computed
// there is never read.
double Engine::EmptyPassMs(int32_t num_rows) {
  std::vector<int32_t> blocks((num_rows + kernels::kKvBlockSize - 1) / kernels::kKvBlockSize);
  std::iota(blocks.begin(), blocks.end(), 0);
  const std::vector<int32_t> token_ids(num_rows, 0);
  model::ForwardBatch batch;
  model::AppendSegment({.block_table = blocks, .chain = token_ids}, &batch);
  for (int32_t row = 0; row < num_rows; ++row) batch.logit_rows.push_back(row);
  ElapsedMs();
  parts_.transformer->Forward(batch, *parts_.kv);
  parts_.transformer->Synchronize();
  return ElapsedMs();
}

bool Engine::IsAwaited() {
  absl::MutexLock lock(&mutex_);
  return is_stopping_ || !inbox_.requests.empty();
}

void Engine::LearnStepCost() {
  const absl::Time began = parts_.now();
  const int32_t max_rows = std::min(config_.max_step_rows, max_context_tokens_);
  // A first pass brings memory in, a second may be recorded: both would make rows look dear for a long time.
  const int num_unlike_others = parts_.transformer->backend().recorder() != nullptr ? 2 : 1;
  LearningPasses passes;
  const auto learn = [&](int32_t num_rows, int round) {
    if (num_rows > max_rows || parts_.now() - began >= kMaxLearning) return;
    const double pass_ms = EmptyPassMs(num_rows);
    ++passes.num_passes;
    if (round >= num_unlike_others) step_cost_.Observe({.num_rows = num_rows}, static_cast<float>(pass_ms));
  };
  // The curve's two ends, which the planner can least do without, then all of it until a request comes.
  for (int round = 0; round <= num_unlike_others; ++round) {
    for (const int32_t num_rows : {kFewRows, 1}) learn(num_rows, round);
  }
  is_ready_.Notify();
  for (int round = 0; round < kLearningRounds; ++round) {
    for (int32_t num_rows = 1; num_rows <= kMaxLearnedRows && !IsAwaited(); num_rows *= 2) learn(num_rows, round);
  }
  passes.seconds = absl::ToDoubleSeconds(parts_.now() - began);
  if (parts_.learned) parts_.learned(passes);
}

void Engine::Run() {
  LearnStepCost();
  for (;;) {
    is_idle_.store(false);
    num_beats_.fetch_add(1);
    const bool has_more = Step();
    absl::MutexLock lock(&mutex_);
    if (!has_more) {
      is_idle_.store(true);
      const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || !inbox_.requests.empty() || !inbox_.aborts.empty();
      };
      mutex_.Await(absl::Condition(&has_news));
    }
    if (is_stopping_) return;
  }
}

void Engine::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  TakeInbox();
  std::vector<Ticket> tickets;
  for (const auto& [ticket, active] : requests_) tickets.push_back(ticket);
  for (const Ticket ticket : tickets) End(ticket);
  EndStep();
  Publish();
}

absl::StatusOr<QueuePlace> Engine::Reserve(int64_t num_bytes) {
  if (is_draining_.load()) {
    return base::WithReason(absl::UnavailableError("the server is draining: try another one"), "DRAINING");
  }
  return queue_.Reserve(num_bytes);
}

absl::Status Engine::Submit(QueuePlace place, GenerationRequest request) {
  const int64_t num_needed = static_cast<int64_t>(request.prompt.size()) + request.stop.max_tokens;
  if (request.prompt.empty() || request.stop.max_tokens < 1 || num_needed > max_context_tokens_) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: ", request.prompt.size(), " tokens and max_tokens ",
                                                   request.stop.max_tokens, " must fit ", max_context_tokens_));
  }
  FT_RETURN_IF_ERROR(place.Fill(request.num_samples, NumHeldTokens(request)));
  std::shared_ptr<ActiveRequest> active =
      PrepareRequest(std::move(request), {.end_token_ids = parts_.end_token_ids,
                                          .proposers = parts_.proposers->Names(),
                                          .drawable = &drawable_,
                                          .max_tree_nodes = config_.max_tree_nodes});
  active->place = std::move(place);
  absl::MutexLock lock(&mutex_);
  inbox_.requests.push_back(std::move(active));
  return absl::OkStatus();
}

void Engine::Abort(Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  inbox_.aborts.push_back(ticket);
}

void Engine::Drain() { is_draining_.store(true); }

// Counts the step and tells who asked. Host time that follows is the next step's.
void Engine::Account(std::span<const PlannedSequence> plan) {
  PlannerStats& planner = own_stats_.planner;
  CountStep(forecast_, plan, &planner);
  planner.gain_tokens = gain_;
  planner.chances = calibration_.counts();
  planner.num_ask_rounds = ask_policy_.num_rounds();
  planner.worths.assign(ask_policy_.worths().begin(), ask_policy_.worths().end());
  UpdateRowCosts(step_cost_, &planner);
  ReportStep({.step_idx = own_stats_.num_steps,
              .forecast = forecast_,
              .times = own_stats_.times - std::exchange(accounted_times_, own_stats_.times)},
             plan);
}

EngineStats Engine::GetStats() const {
  absl::MutexLock lock(&mutex_);
  EngineStats stats = stats_;
  const QueueLoad queued = queue_.load();
  stats.num_queued = queued.num_requests;
  stats.num_queued_samples = queued.num_samples;
  stats.num_queued_tokens = queued.num_tokens;
  return stats;
}

void Engine::TakeInbox() {
  Inbox inbox;
  {
    absl::MutexLock lock(&mutex_);
    std::swap(inbox, inbox_);
  }
  Enqueue(std::move(inbox.requests));
  for (const Ticket ticket : inbox.aborts) End(ticket);
}

// Without the aborts: they end sequences, also those that a step is computing.
void Engine::TakeRequests() {
  std::vector<std::shared_ptr<ActiveRequest>> requests;
  {
    absl::MutexLock lock(&mutex_);
    std::swap(requests, inbox_.requests);
  }
  Enqueue(std::move(requests));
}

void Engine::Enqueue(std::vector<std::shared_ptr<ActiveRequest>> requests) {
  for (std::shared_ptr<ActiveRequest>& active : requests) {
    requests_.emplace(active->request->ticket, active);
    scheduler_.Enqueue(std::move(active), last_event_);
  }
}

std::unique_ptr<Sequence> Engine::BeginNext(const std::shared_ptr<ActiveRequest>& active) {
  if (active->num_begun == 0) {
    active->masks = DrawMasks(std::exchange(active->mask_bits, {}), drawable_, parts_.transformer->backend());
  }
  std::unique_ptr<Sequence> sequence =
      MakeSequence(next_sequence_id_++, active, parts_.proposers->Names(), *parts_.tokenizer);
  sequence->output.begins = sequence->sample_index == 0;
  sequences_[sequence->id] = sequence.get();
  active->sequences.push_back(sequence.get());
  return sequence;
}

void Engine::End(Ticket ticket) {
  const auto found = requests_.find(ticket);
  if (found == requests_.end()) return;  // it has ended meanwhile
  const std::shared_ptr<ActiveRequest> active = found->second;
  const int32_t num_dropped = DropUnbegun(*active);
  for (int32_t i = 0; i < num_dropped; ++i) outputs_.push_back(AbortUnbegun(*active, active->num_begun + i));
  for (Sequence* sequence : active->sequences) {
    if (!sequence->is_finished) Finish(*sequence, FinishReason::kAbort);
  }
  if (active->num_unfinished == 0) Forget(*active);
}

// Returns how many samples there were that had not begun.
int32_t Engine::DropUnbegun(ActiveRequest& active) {
  if (!active.line_place.has_value()) return 0;
  scheduler_.DropUnbegun(active);
  const int32_t num_dropped = active.request->num_samples - active.num_begun;
  active.num_unfinished -= num_dropped;
  return num_dropped;
}

// The last of its samples has ended.
void Engine::Forget(ActiveRequest& active) {
  active.masks = {};  // here, because outputs still share the request's part of it
  requests_.erase(active.request->ticket);
}

}  // namespace foretoken::verifier
