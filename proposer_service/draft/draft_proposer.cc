// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/draft_proposer.h"

#include <sys/resource.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

// The nodes of a snapshot. Nodes beyond them are too unlikely to be the next root.
constexpr absl::Duration kAnswerPeriod = absl::Milliseconds(250);  // between looks for overdue answers
constexpr int32_t kSnapshotNodes = speculation::kMaxTreeNodes;

speculation::TokenTree SnapshotOf(const DraftForest::Session& session) {
  speculation::TokenTree snapshot = session.tree.Snapshot(session.position(), kSnapshotNodes);
  if (session.reads_features) snapshot.num_predicted_features = static_cast<uint32_t>(session.num_provisional());
  return snapshot;
}

ProposerDescription WithContextLimit(ProposerDescription description, int32_t max_context_tokens) {
  description.max_context_tokens = max_context_tokens;
  return description;
}

// The mean number of tokens of a step with the session's best nodes.
double ValueOf(const DraftForest::Session& session, int32_t node_budget) {
  return ExpectGrowth(SnapshotOf(session), node_budget, 0).value;
}

// Each process has its own salt, because one verifier may use two replicas of a proposer.
uint64_t DrawSalt() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Preemptions per pass. A thread with its own core has hardly any. A thread on a verifier's core has one in every
// second pass.
constexpr double kMaxPreemptions = 0.15;

// Returns how often the operating system has preempted this thread.
int64_t NumPreemptions() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": expected ", least, " to ", most, ", got ", value));
}

}  // namespace

absl::Status Validate(const DraftOptions& options) {
  constexpr int32_t kMaxRows = 4096;
  if (options.model_directory.empty()) {
    return absl::InvalidArgumentError("model: expected a directory with a checkpoint or a GGUF file, got none");
  }
  FT_RETURN_IF_ERROR(CheckRange("threads", options.num_threads, 0, 4096));
  FT_RETURN_IF_ERROR(CheckRange("tensor_parallel", options.tensor_parallel, 1, 64));
  if (options.kv_cache_mb) FT_RETURN_IF_ERROR(CheckRange("kv_cache_mb", *options.kv_cache_mb, 1, 1 << 30));
  if (options.expert_memory_mb) {
    FT_RETURN_IF_ERROR(CheckRange("expert_memory_mb", *options.expert_memory_mb, 1, 1 << 30));
  }
  const DraftForestOptions& forest = options.forest;
  FT_RETURN_IF_ERROR(CheckRange("draft_children", forest.num_children, 1, 256));
  FT_RETURN_IF_ERROR(CheckRange("draft_tree_rows", forest.max_tree_rows, 1, kMaxRows));
  FT_RETURN_IF_ERROR(CheckRange("draft_context_rows", forest.max_context_rows, 1, kMaxRows));
  FT_RETURN_IF_ERROR(CheckRange("draft_grown_nodes", forest.max_grown_nodes, 0, 1 << 16));
  const auto check_chance = [](absl::string_view flag, float chance) -> absl::Status {
    if (chance >= 0 && chance <= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(flag, ": expected 0 to 1, got ", chance));
  };
  FT_RETURN_IF_ERROR(check_chance("draft_min_path_chance", forest.min_path_chance));
  FT_RETURN_IF_ERROR(check_chance("draft_shared_min_path_chance", forest.shared_min_path_chance));
  return absl::OkStatus();
}

DraftMetrics::DraftMetrics(telemetry::Metrics& metrics)
    : passes(metrics.AddCounter("foretoken_draft_passes_total", "Forward passes of the draft model.")),
      context_rows(metrics.AddCounter("foretoken_draft_context_rows_total", "Context tokens computed.")),
      tree_rows(metrics.AddCounter("foretoken_draft_tree_rows_total", "Tree nodes expanded.")),
      answers(metrics.AddCounter("foretoken_draft_answers_total", "First trees sent after an advance.")),
      hits(metrics.AddCounter("foretoken_draft_hits_total", "First trees that existed before the advance.")),
      answer_seconds(metrics.AddHistogram("foretoken_draft_answer_seconds", "Time from an advance to its first tree.",
                                          {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1})),
      expert_loads(
          metrics.AddCounter("foretoken_draft_expert_loads_total", "Experts that passes read from the model's files.")),
      expert_bytes(metrics.AddGauge("foretoken_draft_expert_bytes", "Bytes of the packed experts in memory.")) {}

absl::StatusOr<std::unique_ptr<DraftProposer>> DraftProposer::Load(const DraftOptions& options,
                                                                   telemetry::Metrics& metrics) {
  FT_RETURN_IF_ERROR(Validate(options));
  FT_ASSIGN_OR_RETURN(model::OpenedModel opened, model::OpenModel({.directory = options.model_directory,
                                                                   .backend = {.device = options.device,
                                                                               .num_threads = options.num_threads,
                                                                               .isa = options.cpu_isa,
                                                                               .quantization = options.quantization},
                                                                   .tensor_parallel = options.tensor_parallel}));
  for (const std::string& note : opened.notes) spdlog::warn("{}", note);
  FT_ASSIGN_OR_RETURN(const model::ContextPlan context,
                      model::PlanContext({.kv_cache_mb = options.kv_cache_mb,
                                          .kv_cache_dtype = opened.ranks->backend(0).kv_cache_dtype()},
                                         opened.config));
  FT_ASSIGN_OR_RETURN(model::RunnableModel runnable,
                      model::LoadModel(std::move(opened),
                                       {.max_rows = options.forest.max_tree_rows + options.forest.max_context_rows,
                                        .context = context,
                                        .max_expert_bytes = model::ExpertBytes(options.expert_memory_mb)},
                                       nullptr));
  spdlog::info("draft model loaded: {}", model::Describe(runnable.times));
  return Make(MakeTransformerDrafter(std::move(runnable)), options.forest, metrics);
}

std::unique_ptr<DraftProposer> DraftProposer::Make(Drafter drafter, const DraftForestOptions& options,
                                                   telemetry::Metrics& metrics) {
  DraftForestOptions salted = options;
  if (salted.sampling_salt == 0) salted.sampling_salt = DrawSalt();
  return std::make_unique<DraftProposer>(std::move(drafter), salted, metrics);
}

DraftProposer::DraftProposer(Drafter drafter, const DraftForestOptions& options, telemetry::Metrics& metrics, Clock now)
    : model_(std::move(drafter.model)),
      now_(std::move(now)),
      situation_([this] {
        const std::lock_guard lock(mutex_);
        return DraftMailbox::Situation{.now = now_(), .next_pass = next_pass_};
      }),
      metrics_(metrics),
      forest_(*model_, options),
      description_(WithContextLimit(std::move(drafter.description), forest_.max_context_tokens())),
      watch_(description_.features == nullptr ? std::vector<int32_t>() : description_.features->layers) {}

DraftProposer::~DraftProposer() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void DraftProposer::Start() {
  thread_ = std::thread([this] { Run(); });
}

void DraftProposer::Run() {
  double preemptions = 0;  // per pass, a moving mean
  int64_t num_seen = NumPreemptions();
  for (bool is_idle = false;;) {
    {
      std::unique_lock lock(mutex_);
      const auto has_reason = [this] { return is_stopping_ || !inbox_.empty(); };
      if (is_idle && owed_.empty()) wake_.wait(lock, has_reason);
      if (is_idle) WaitAtMost(kAnswerPeriod, wake_, lock, has_reason);  // an answer becomes overdue without a pass
      if (is_stopping_) return;
    }
    is_idle = !Step();
    const int64_t num_now = NumPreemptions();
    if (!is_idle) preemptions += (static_cast<double>(num_now - std::exchange(num_seen, num_now)) - preemptions) / 32;
    forest_.set_shares_cores(preemptions > kMaxPreemptions);
  }
}

bool DraftProposer::Step() {
  const bool had_updates = TakeUpdates();
  const DraftForest::Counters before = forest_.counters();
  const absl::Time begin = now_();
  const std::vector<DraftForest::SessionId> touched = forest_.Grow();
  if (!touched.empty()) MeasurePass(now_() - begin);
  CountWork(before);
  PublishGrown(touched);
  ShareNextPass();
  return had_updates || !touched.empty();
}

bool DraftProposer::TakeUpdates() {
  std::vector<std::shared_ptr<DraftMailbox>> inbox;
  {
    const std::lock_guard lock(mutex_);
    inbox.swap(inbox_);
    num_new_sessions_ = 0;
  }
  IdleUnheardSessions(inbox);
  for (const std::shared_ptr<DraftMailbox>& mailbox : inbox) {
    const DraftMailbox::Update update = mailbox->Collect();
    const auto known = session_ids_.find(mailbox.get());
    if (update.is_closed) {
      if (known != session_ids_.end()) Close(known->second);
      continue;
    }
    const DraftForest::SessionId id =
        known != session_ids_.end() ? known->second : forest_.Open(mailbox->introduction());
    if (known == session_ids_.end()) {
      session_ids_[mailbox.get()] = id;
      session_states_[id] = {.mailbox = mailbox, .session_id = id, .heard_at = now_()};
    }
    forest_.Append(id, update.token_ids);
    forest_.AppendFeatures(id, update.first_feature_position, update.features);
    forest_.Want(id, update.tree_request);
    ApplyUpdate(update, session_states_.at(id));
  }
  return !inbox.empty();
}

void DraftProposer::IdleUnheardSessions(std::span<const std::shared_ptr<DraftMailbox>> inbox) {
  if (inbox.empty()) return;  // nobody needs room
  const absl::Time now = now_();
  for (const std::shared_ptr<DraftMailbox>& mailbox : inbox) {
    const auto known = session_ids_.find(mailbox.get());
    if (known != session_ids_.end()) session_states_.at(known->second).heard_at = now;
  }
  for (const auto& [id, state] : session_states_) {
    if (now - state.heard_at < kMaxUnheardTime || forest_.Find(id).is_idle()) continue;
    forest_.Want(id, {});
    owed_.erase(id);
  }
}

void DraftProposer::Close(DraftForest::SessionId id) {
  forest_.Close(id);
  owed_.erase(id);
  session_ids_.erase(session_states_.at(id).mailbox.get());
  session_states_.erase(id);
}

void DraftProposer::ApplyUpdate(const DraftMailbox::Update& update, SessionState& state) {
  const DraftForest::Session& session = forest_.Find(state.session_id);
  state.tree_request = update.tree_request;
  state.asked_at = update.asked_at;
  state.had_grown = session.has_answer();
  // The first tree of a root that is expanded again is a better one.
  state.num_published = session.is_root_stale() ? 0 : session.tree.num_expanded();
  state.provisional_value = ProvisionalValue(state);
  owed_.erase(state.session_id);
  if (session.is_refused) {
    state.mailbox->Refuse();
    state.mailbox->Announce();
  } else if (session.is_forgotten) {
    state.mailbox->Forget();
    state.mailbox->Announce();
  } else if (update.is_owed) {
    owed_.insert(state.session_id);
    // The forest's tree may be deeper than the snapshot and hold the new root.
    if (state.had_grown && IsDue(state)) Publish(state);
  }
}

// Unset: the root is not provisional, or it has no tree.
std::optional<double> DraftProposer::ProvisionalValue(const SessionState& state) const {
  const DraftForest::Session& session = forest_.Find(state.session_id);
  const bool is_provisional = session.reads_features && session.num_provisional() > 0 && session.has_answer();
  if (!is_provisional) return std::nullopt;
  return ValueOf(session, state.tree_request.node_budget);
}

// Whether an owed answer goes out with the tree as it is.
bool DraftProposer::IsDue(const SessionState& state) const {
  const DraftForest::Session& session = forest_.Find(state.session_id);
  if (session.samples || !forest_.WantsRows(session)) return true;
  const absl::Duration max_wait = std::min(state.tree_request.until_next_step, kMaxAnswerTime);
  const Patience patience = {.step = state.tree_request.step, .left = state.asked_at + max_wait - now_()};
  return !IsWorthAnotherPass(SnapshotOf(session), state.tree_request.node_budget, NextPass(), patience);
}

bool DraftProposer::IsWorthPublishing(const SessionState& state) const {
  const DraftForest::Session& session = forest_.Find(state.session_id);
  if (owed_.contains(state.session_id)) return IsDue(state);
  const bool has_doubled = session.tree.num_expanded() > 2 * state.num_published;
  if (session.samples || !forest_.WantsRows(session)) return true;
  if (!state.provisional_value.has_value() || session.num_provisional() > 0) return has_doubled;
  return ValueOf(session, state.tree_request.node_budget) >= *state.provisional_value;
}

void DraftProposer::PublishGrown(std::span<const DraftForest::SessionId> touched) {
  for (const DraftForest::SessionId id : forest_.TakeForgotten()) {
    const auto state = session_states_.find(id);
    if (state != session_states_.end()) CountFeatures(state->second);
  }
  // A session that the pass did not touch gains nothing by waiting, so its owed answer goes out.
  std::vector<DraftForest::SessionId> stuck(owed_.begin(), owed_.end());
  std::erase_if(stuck, [&](DraftForest::SessionId id) { return std::ranges::count(touched, id) > 0; });
  for (const DraftForest::SessionId id : touched) {
    const DraftForest::Session& session = forest_.Find(id);
    CountFeatures(session_states_.at(id));
    if (session.is_idle() || !session.has_answer()) continue;
    if (IsWorthPublishing(session_states_.at(id))) Publish(session_states_.at(id));
  }
  for (const DraftForest::SessionId id : stuck) {
    if (forest_.Find(id).has_answer()) Publish(session_states_.at(id));
  }
  AnswerOverdue();
}

void DraftProposer::AnswerOverdue() {
  if (owed_.empty()) return;
  const absl::Time asked_at = now_() - kMaxAnswerTime;
  for (const DraftForest::SessionId id : owed_) {
    if (forest_.Find(id).has_answer()) continue;  // it waits for further passes and is soon due
    DraftMailbox& mailbox = *session_states_.at(id).mailbox;
    if (mailbox.EndWait(asked_at)) mailbox.Announce();
  }
}

void DraftProposer::Publish(SessionState& state) {
  const DraftForest::Session& session = forest_.Find(state.session_id);
  owed_.erase(state.session_id);
  state.num_published = session.tree.num_expanded();
  const std::optional<double> value = ProvisionalValue(state);
  const bool is_renewed = std::exchange(state.provisional_value, value).has_value() && !value.has_value();
  state.mailbox->Publish({.tree = SnapshotOf(session),
                          .needed_no_pass = state.had_grown,
                          .allowed = session.root_allowed,
                          .is_renewed = is_renewed});
  state.mailbox->Announce();
}

// Tells the mailbox how many features still wait. While the session publishes no tree, nothing else would tell the
// service.
void DraftProposer::CountFeatures(SessionState& state) {
  const DraftForest::Session& session = forest_.Find(state.session_id);
  if (session.is_forgotten) {
    state.mailbox->Forget();
  } else if (session.features.has_value()) {
    state.mailbox->SetUnused(session.features->num_unused());
  }
  if (session.reads_features && (session.is_idle() || !session.has_answer())) state.mailbox->Announce();
}

// The next pass divides its rows among the sessions with owed answers, because their trees are the youngest.
ExpectedPass DraftProposer::NextPass() const {
  const auto num_owed = std::max(static_cast<int32_t>(owed_.size()), 1);
  return {.num_rows = std::max(forest_.options().max_tree_rows / num_owed, 1), .duration = mean_pass_};
}

void DraftProposer::ShareNextPass() {
  const std::lock_guard lock(mutex_);
  next_pass_ = NextPass();
}

void DraftProposer::MeasurePass(absl::Duration duration) {
  mean_pass_ = mean_pass_ == absl::InfiniteDuration() ? duration : mean_pass_ + (duration - mean_pass_) / 4;
}

void DraftProposer::CountWork(const DraftForest::Counters& before) {
  const DraftForest::Counters& after = forest_.counters();
  metrics_.passes.Increment(static_cast<double>(after.num_passes - before.num_passes));
  metrics_.context_rows.Increment(static_cast<double>(after.num_context_rows - before.num_context_rows));
  metrics_.tree_rows.Increment(static_cast<double>(after.num_tree_rows - before.num_tree_rows));
  const model::ExpertUse experts = model_->expert_use();
  metrics_.expert_loads.Increment(
      static_cast<double>(experts.num_loads - std::exchange(num_expert_loads_, experts.num_loads)));
  metrics_.expert_bytes.Set(static_cast<double>(experts.num_bytes));
  if (description_.features == nullptr) return;
  const std::optional<std::string> complaint = watch_.Observe(after.num_tried_roots, after.num_hit_roots);
  if (complaint.has_value()) spdlog::error("{}: {}", description_.method, *complaint);
}

std::unique_ptr<Session> DraftProposer::Open(const SessionIntroduction& introduction) {
  bool has_room = true;
  {
    const std::lock_guard lock(mutex_);
    has_room = num_new_sessions_ < kMaxNewSessions;
    if (has_room) ++num_new_sessions_;
  }
  auto mailbox = std::make_shared<DraftMailbox>(introduction, [this, has_room](std::shared_ptr<DraftMailbox> self) {
    if (!has_room) return;
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(self));
    wake_.notify_one();
  });
  if (!has_room) mailbox->Refuse();
  return std::make_unique<DraftSession>(std::move(mailbox), situation_);
}

std::vector<speculation::TokenTree> DraftProposer::Propose(std::span<const ProposalRequest> requests) {
  std::vector<speculation::TokenTree> trees;
  trees.reserve(requests.size());
  for (const ProposalRequest& request : requests) {
    DraftMailbox::Answer answer = static_cast<DraftSession&>(*request.session).mailbox().Take(request.node_budget);
    if (answer.is_first) {
      metrics_.answers.Increment();
      if (answer.needed_no_pass) metrics_.hits.Increment();
      metrics_.answer_seconds.Observe(absl::ToDoubleSeconds(now_() - answer.asked_at));
    }
    trees.push_back(std::move(answer.tree));
  }
  return trees;
}

}  // namespace foretoken::proposer
