// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/check.h"
#include "verifier_service/commit.h"
#include "verifier_service/report_step.h"

namespace foretoken::verifier {
namespace {

// What is learned of rows before serving: with a large model it must not take long.
constexpr int32_t kMaxLearnedRows = 64;
constexpr int kLearningPasses = 4;
constexpr absl::Duration kMaxLearning = absl::Seconds(3);

uint32_t ProposerBits(const std::vector<std::string>& names, const SpeculationRequest& request) {
  const std::vector<std::string>& allowed = request.proposers;
  uint32_t bits = request.prediction.empty() ? 0 : 1u << names.size();
  for (size_t i = 0; i < names.size(); ++i) {
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), names[i]) != allowed.end()) bits |= 1u << i;
  }
  return bits;
}

std::vector<ProposerCount> NoCounts(const std::vector<std::string>& names) {
  std::vector<ProposerCount> counts;
  for (const std::string& name : names) counts.push_back({.proposer = name});
  counts.push_back({.proposer = std::string(kPredictionName)});
  return counts;
}

absl::Status AtLeast(absl::string_view field, int64_t minimum, int64_t value) {
  if (value >= minimum) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected at least ", minimum, ", got ", value));
}

}  // namespace

absl::Status Validate(const EngineConfig& config) {
  FT_RETURN_IF_ERROR(AtLeast("max_queued_requests", 1, config.max_queued_requests));
  FT_RETURN_IF_ERROR(AtLeast("max_running_samples", 1, config.max_running_samples));
  FT_RETURN_IF_ERROR(AtLeast("max_step_rows", config.max_running_samples, config.max_step_rows));
  FT_RETURN_IF_ERROR(AtLeast("max_tree_nodes", 0, config.max_tree_nodes));
  if (config.max_tree_nodes > speculation::kMaxTreeNodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tree_nodes: expected at most ", speculation::kMaxTreeNodes, ", got ", config.max_tree_nodes));
  }
  if (!(config.max_inter_token_growth >= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_inter_token_growth: expected at least 1, got ", config.max_inter_token_growth));
  }
  return absl::OkStatus();
}

Engine::Engine(const EngineConfig& config, EngineParts parts)
    : config_(config),
      parts_(std::move(parts)),
      max_context_tokens_(
          std::min(parts_.transformer->options().max_positions, parts_.kv->num_blocks * kernels::kKvBlockSize)),
      scheduler_({.max_running = config.max_running_samples,
                  .enable_prefix_cache = config.enable_prefix_cache,
                  .max_tree_nodes = config.max_tree_nodes},
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
}

void Engine::LearnStepCost() {
  // K/V blocks that hold nothing yet serve as one long context; what is computed there is never read.
  const int32_t max_rows = std::min({kMaxLearnedRows, config_.max_step_rows, max_context_tokens_});
  std::vector<int32_t> blocks((max_rows + kernels::kKvBlockSize - 1) / kernels::kKvBlockSize);
  std::iota(blocks.begin(), blocks.end(), 0);
  const std::vector<int32_t> token_ids(max_rows, 0);
  const int num_unlike_others = parts_.transformer->backend().recorder() != nullptr ? 2 : 1;
  const absl::Time began = parts_.now();
  for (int pass = 0; pass < kLearningPasses; ++pass) {
    for (int32_t num_rows = 1; num_rows <= max_rows && parts_.now() - began < kMaxLearning; num_rows *= 2) {
      model::ForwardBatch batch;
      model::AppendSegment({.block_table = blocks, .chain = std::span(token_ids).first(num_rows)}, &batch);
      for (int32_t row = 0; row < num_rows; ++row) batch.logit_rows.push_back(row);
      ElapsedMs();
      parts_.transformer->Forward(batch, *parts_.kv);
      parts_.transformer->Synchronize();
      const double step_ms = ElapsedMs();
      // The first pass brings memory in, a second may be recorded: both would make rows look dear for a long time.
      if (pass >= num_unlike_others) step_cost_.Observe({.num_rows = num_rows}, static_cast<float>(step_ms));
    }
  }
}

void Engine::Run() {
  LearnStepCost();
  for (;;) {
    const bool has_more = Step();
    absl::MutexLock lock(&mutex_);
    if (!has_more) {
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
  for (const auto& [id, sequence] : sequences_) {
    if (!sequence->is_finished) Finish(*sequence, FinishReason::kAbort);
  }
  EndStep();
  Publish();
}

absl::StatusOr<QueuePlace> Engine::Reserve() {
  if (is_draining_.load()) return absl::UnavailableError("the server is draining: try another one");
  if (num_queued_.fetch_add(1) >= config_.max_queued_requests) {
    num_queued_.fetch_sub(1);
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: ", config_.max_queued_requests, " requests are waiting"));
  }
  return QueuePlace(&num_queued_);
}

absl::Status Engine::Submit(QueuePlace place, GenerationRequest request) {
  const int64_t num_needed = static_cast<int64_t>(request.prompt.size()) + request.stop.max_tokens;
  if (request.prompt.empty() || request.stop.max_tokens < 1 || num_needed > max_context_tokens_) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: ", request.prompt.size(), " tokens and max_tokens ",
                                                   request.stop.max_tokens, " must fit ", max_context_tokens_));
  }
  auto active = std::make_shared<ActiveRequest>();
  active->place = std::move(place);
  active->request = std::move(request);
  absl::MutexLock lock(&mutex_);
  if (!tickets_.try_emplace(active->request.request_id, active->request.ticket).second) {
    return absl::AlreadyExistsError(absl::StrCat("request_id: ", active->request.request_id, " is in use"));
  }
  inbox_.requests.push_back(std::move(active));
  return absl::OkStatus();
}

bool Engine::Abort(const std::string& request_id) {
  absl::MutexLock lock(&mutex_);
  const auto ticket = tickets_.find(request_id);
  if (ticket == tickets_.end()) return false;
  inbox_.aborts.push_back(ticket->second);
  return true;
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
  stats.num_queued = num_queued_.load();
  return stats;
}

void Engine::TakeInbox() {
  Inbox inbox;
  {
    absl::MutexLock lock(&mutex_);
    std::swap(inbox, inbox_);
  }
  for (const std::shared_ptr<ActiveRequest>& active : inbox.requests) Begin(active);
  for (const Ticket ticket : inbox.aborts) End(ticket);
}

// Without the aborts: they end sequences, also those that a step is computing.
void Engine::TakeRequests() {
  std::vector<std::shared_ptr<ActiveRequest>> requests;
  {
    absl::MutexLock lock(&mutex_);
    std::swap(requests, inbox_.requests);
  }
  for (const std::shared_ptr<ActiveRequest>& active : requests) Begin(active);
}

void Engine::Begin(const std::shared_ptr<ActiveRequest>& active) {
  const GenerationRequest& request = active->request;
  active->ending_ids = request.stop.stop_token_ids;
  if (!request.stop.ignore_eos) {
    active->ending_ids.insert(active->ending_ids.end(), parts_.end_token_ids.begin(), parts_.end_token_ids.end());
  }
  active->masks = DrawMasks(request, active->ending_ids, NumTokens(), parts_.transformer->backend());
  active->allowed_proposers = ProposerBits(parts_.proposers->Names(), request.speculation);
  if (request.speculation.mode != SpeculationMode::kOff && active->allowed_proposers != 0) {
    active->max_tree_nodes =
        std::min(config_.max_tree_nodes, request.speculation.max_tree_nodes.value_or(config_.max_tree_nodes));
  }
  active->num_unfinished = request.num_samples;
  for (int32_t i = 0; i < request.num_samples; ++i) {
    auto sequence = std::make_unique<Sequence>(
        next_sequence_id_++, active, i,
        TextStream(*parts_.tokenizer, {.stop_strings = request.stop.stop_strings,
                                       .include_stop_string = request.stop.include_stop_string,
                                       .skip_special_tokens = request.output.skip_special_tokens}));
    sequence->sampling = request.sampling;
    sequence->sampling.sample_index += static_cast<uint32_t>(i);
    sequence->token_ids = request.prompt;
    sequence->usual_nodes = static_cast<float>(active->max_tree_nodes);
    sequence->counts_tokens = request.sampling.repetition_penalty != 1 || request.sampling.presence_penalty != 0 ||
                              request.sampling.frequency_penalty != 0;
    if (sequence->counts_tokens) {
      for (const int32_t token_id : request.prompt) sequence->counts.AddPrompt(token_id);
    }
    sequence->proposer_counts = NoCounts(parts_.proposers->Names());
    sequence->guesses.resize(sequence->proposer_counts.size());
    sequence->guess_positions.resize(sequence->guesses.size());
    if (active->max_tree_nodes > 0 && !request.speculation.prediction.empty()) {
      sequence->follower.emplace(request.speculation.prediction);
    }
    sequences_[sequence->id] = sequence.get();
    scheduler_.Enqueue(std::move(sequence));
  }
}

void Engine::End(Ticket ticket) {
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->request().ticket == ticket && !sequence->is_finished) Finish(*sequence, FinishReason::kAbort);
  }
}

}  // namespace foretoken::verifier
