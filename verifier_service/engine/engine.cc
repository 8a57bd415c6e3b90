// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "kernels/check.h"
#include "verifier_service/engine/commit.h"

namespace foretoken::verifier {
namespace {

// The engine is not told why a call ends. So near to its deadline, the deadline has ended it.
constexpr absl::Duration kNearDeadline = absl::Milliseconds(100);
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
  FT_RETURN_IF_ERROR(AtLeast("max_tenant_running_samples", 1, config.tenants.max_running_samples.value_or(1)));
  FT_RETURN_IF_ERROR(AtLeast("max_tenant_queued_tokens", 1, config.tenants.max_queued_tokens.value_or(1)));
  if (config.max_step_rows < config.max_running_samples) {  // every running sample has a row in every step
    return absl::InvalidArgumentError(absl::StrCat("max_step_rows: expected at least max_running_samples, ",
                                                   config.max_running_samples, ", got ", config.max_step_rows));
  }
  FT_RETURN_IF_ERROR(AtLeast("max_tree_nodes", 0, config.max_tree_nodes));
  if (config.max_tree_nodes > speculation::kMaxTreeNodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tree_nodes: expected at most ", speculation::kMaxTreeNodes, ", got ", config.max_tree_nodes));
  }
  const PromptLimits& prompts = config.prompts;
  if (!(prompts.max_inter_token_growth >= 1) || std::isinf(prompts.max_inter_token_growth)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_inter_token_growth: expected a number of at least 1, got ", prompts.max_inter_token_growth));
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
              .num_tokens = config.max_queued_tokens},
             config.tenants),
      forecast_(config.max_running_samples, config.max_step_rows),
      scheduler_({.max_running = config.max_running_samples,
                  .enable_prefix_cache = config.enable_prefix_cache,
                  .priority_aging = config.priority_aging,
                  .tenants = config.tenants},
                 parts_.kv->num_blocks),
      experience_({.step_cost = StepCost(config.max_step_rows),
                   .calibration = Calibration(parts_.proposers->Names().size() + kNumOwnProposers),
                   .place_chances = PlaceChances(config.max_tree_nodes)}),
      feature_planes_(*parts_.transformer, parts_.kv->num_blocks),
      speculation_(parts_.proposers->Names().size()),
      timer_(parts_.now) {
  FT_CHECK(config.max_step_rows <= parts_.transformer->options().max_rows);
  FT_CHECK(config.max_step_rows <= parts_.transformer->options().max_logit_rows);
  own_stats_.proposers = NoCounts(parts_.proposers->Names());
  own_stats_.planner = PlannerStats(config.max_step_rows);
  own_stats_.num_blocks = parts_.kv->num_blocks;
  own_stats_.num_free_blocks = scheduler_.pool().num_free();
  policy_ = speculation_.Decide({.num_sequences = 1, .allowed = ~0u});  // all proposers are asked for the first request
  own_stats_.planner.asked_proposers = speculation_.asked();
  stats_ = own_stats_;
}

Engine::~Engine() { Stop(); }

void Engine::Start() {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "engine");  // for tools that show threads, such as top -H
  is_ready_.WaitForNotification();
}

bool Engine::is_awaited() {
  absl::MutexLock lock(&mutex_);
  return is_stopping_ || !inbox_.requests.empty();
}

void Engine::Run() {
  const LearningPasses passes = LearnStepCost({.transformer = parts_.transformer,
                                               .kv = parts_.kv,
                                               .max_rows = std::min(config_.max_step_rows, max_context_tokens_),
                                               .now = parts_.now,
                                               .on_ready = [this] { is_ready_.Notify(); },
                                               .must_end = [this] { return is_awaited(); }},
                                              experience_.step_cost);
  if (parts_.learned) parts_.learned(passes);
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

Pulse Engine::pulse() const {
  return {.num_beats = num_beats_.load() + parts_.transformer->expert_use().num_loads, .is_idle = is_idle_.load()};
}

void Engine::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  TakeInbox();
  for (const Ticket ticket : requests_.Tickets()) End(ticket);
  EndStep();
  Publish();
}

absl::StatusOr<QueuePlace> Engine::Reserve(const RequestArrival& arrival) {
  if (is_draining_.load()) {
    return base::WithReason(absl::UnavailableError("the server is draining: try another one"), "DRAINING");
  }
  FT_RETURN_IF_ERROR(CheckDeadline(arrival.deadline, forecast_.LeastWait(/*num_ahead=*/0), kFirstToken));
  return queue_.Reserve(arrival.num_bytes, arrival.tenant, arrival.num_samples);
}

absl::Status Engine::Submit(QueuePlace place, GenerationRequest request) {
  const int64_t num_needed = static_cast<int64_t>(request.prompt.size()) + request.stop.max_tokens;
  if (request.prompt.empty() || request.stop.max_tokens < 1 || num_needed > max_context_tokens_) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: ", request.prompt.size(), " tokens and max_tokens ",
                                                   request.stop.max_tokens, " must fit ", max_context_tokens_));
  }
  FT_RETURN_IF_ERROR(CheckDeadline(
      request.deadline, forecast_.LeastWait(queue_.NumAhead(request.priority, request.tenant)), kFirstToken));
  FT_RETURN_IF_ERROR(place.Fill({.tenant = request.tenant,
                                 .num_samples = request.num_samples,
                                 .num_tokens = NumHeldTokens(request),
                                 .priority = request.priority}));
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

EngineStats Engine::GetStats() const {
  absl::MutexLock lock(&mutex_);
  EngineStats stats = stats_;
  const QueueLoad queued = queue_.load();
  stats.num_queued = queued.num_requests;
  stats.num_queued_samples = queued.num_samples;
  stats.num_queued_tokens = queued.num_tokens;
  stats.num_queued_tenants = queue_.num_tenants();
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

// Takes the requests and leaves the aborts, because an abort may end a sequence that the device is computing.
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
    requests_.Add(active);
    scheduler_.Enqueue(std::move(active), timer_.entered());
  }
  ShedExcess();
}

std::unique_ptr<Sequence> Engine::BeginNext(const std::shared_ptr<ActiveRequest>& active) {
  if (active->num_begun == 0) {
    // Under a grammar every row has a mask of its own, which the step makes (grammar_masks.h).
    if (active->request->grammar == nullptr) {
      active->masks = DrawMasks(std::exchange(active->mask_bits, {}), drawable_, parts_.transformer->backend());
    }
  }
  std::unique_ptr<Sequence> sequence = MakeSequence(requests_.NextId(), active, parts_.proposers->Names(),
                                                    *parts_.tokenizer, drawable_, parts_.compute_time);
  mask_turns_.Begin(*sequence);
  sequence->output.began = timer_.entered();
  requests_.Begin(*sequence);
  return sequence;
}

void Engine::End(Ticket ticket) {
  const std::shared_ptr<ActiveRequest> active = requests_.Find(ticket);
  if (active == nullptr) return;  // the request has ended already
  const int32_t num_dropped = DropUnbegun(*active);
  for (int32_t i = 0; i < num_dropped; ++i) {
    outputs_.push_back(AbortUnbegun(*active->request, ModeOf(*active), active->num_begun + i));
  }
  for (Sequence* sequence : active->sequences) {
    if (sequence->is_finished) continue;
    sequence->is_cut_short = active->request->deadline - timer_.entered() < kNearDeadline;
    FinishSample(*sequence, FinishReason::kAbort);
  }
}

// Returns the number of dropped samples.
int32_t Engine::DropUnbegun(ActiveRequest& active) {
  if (!active.line_place.has_value()) return 0;
  scheduler_.DropUnbegun(active);
  const int32_t num_dropped = active.request->num_samples - active.num_begun;
  requests_.Drop(active, num_dropped);
  return num_dropped;
}

}  // namespace foretoken::verifier
