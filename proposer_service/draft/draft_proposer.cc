// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/draft_proposer.h"

#include <sys/resource.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {
namespace {

// Nodes of a snapshot: what is grown beyond them is too unlikely to be the next root.
constexpr int32_t kSnapshotNodes = speculation::kMaxTreeNodes;

speculation::TokenTree SnapshotOf(const DraftForest::Session& session) {
  return session.tree.Snapshot(session.size(), kSnapshotNodes);
}

// Replicas differ, too: a verifier may have one of them twice.
uint64_t DrawSalt() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// A core that is ours alone is taken from us hardly ever; one that a verifier computes on, in every second pass.
constexpr double kMaxPreemptions = 0.15;

// How often the kernel has taken the core from this thread, which could have gone on.
int64_t NumPreemptions() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": expected ", least, " to ", most, ", got ", value));
}

DraftForest::Parts PartsOf(const model::RunnableModel& model) {
  return {.transformer = model.transformer.get(), .kv = &model.kv, .num_tokens = model.num_tokens()};
}

}  // namespace

absl::Status Validate(const DraftOptions& options) {
  constexpr int32_t kMaxRows = 4096;
  if (options.model_directory.empty()) {
    return absl::InvalidArgumentError("model: expected a directory with a checkpoint, got none");
  }
  FT_RETURN_IF_ERROR(CheckRange("threads", options.num_threads, 0, 4096));
  FT_RETURN_IF_ERROR(CheckRange("tensor_parallel", options.tensor_parallel, 1, 64));
  if (options.kv_cache_mb) FT_RETURN_IF_ERROR(CheckRange("kv_cache_mb", *options.kv_cache_mb, 1, 1 << 30));
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
      answers(metrics.AddCounter("foretoken_draft_answers_total", "First trees given after an advance.")),
      hits(metrics.AddCounter("foretoken_draft_hits_total", "Of these, trees that had been grown before the advance.")),
      answer_seconds(metrics.AddHistogram("foretoken_draft_answer_seconds", "From an advance to its first tree.",
                                          {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1})) {}

absl::StatusOr<std::unique_ptr<DraftProposer>> DraftProposer::Load(const DraftOptions& options,
                                                                   telemetry::Metrics& metrics) {
  FT_RETURN_IF_ERROR(Validate(options));
  FT_ASSIGN_OR_RETURN(model::OpenedModel opened,
                      model::OpenModel({.directory = options.model_directory,
                                        .backend = {.device = options.device,
                                                    .num_threads = options.num_threads,
                                                    .isa = options.cpu_isa,
                                                    .weight_quantization = options.weight_quantization},
                                        .tensor_parallel = options.tensor_parallel}));
  for (const std::string& note : opened.notes) spdlog::warn("{}", note);
  FT_ASSIGN_OR_RETURN(const model::ContextPlan context,
                      model::PlanContext({.kv_cache_mb = options.kv_cache_mb}, opened.config));
  FT_ASSIGN_OR_RETURN(
      model::RunnableModel runnable,
      model::LoadModel(std::move(opened),
                       {.max_rows = options.forest.max_tree_rows + options.forest.max_context_rows, .context = context},
                       nullptr));
  spdlog::info("draft model loaded: {}", model::Describe(runnable.times));
  DraftForestOptions forest = options.forest;
  if (forest.sampling_salt == 0) forest.sampling_salt = DrawSalt();
  return std::make_unique<DraftProposer>(std::move(runnable), forest, metrics);
}

DraftProposer::DraftProposer(model::RunnableModel model, const DraftForestOptions& options, telemetry::Metrics& metrics,
                             Clock now)
    : model_(std::move(model)),
      now_(std::move(now)),
      situation_([this] {
        absl::MutexLock lock(&mutex_);
        return DraftMailbox::Situation{.now = now_(), .next_pass = next_pass_};
      }),
      description_{
          .method = "draft",
          .vocabulary_fingerprint = base::ToHex(tokenizer::VocabularyFingerprint(model_.tokenizer.vocabulary())),
          .token_digests = tokenizer::TokenDigests(model_.tokenizer.vocabulary()),
          .num_tokens = static_cast<int32_t>(model_.transformer->config().vocab_size),
          .max_context_tokens = model_.transformer->options().max_positions},
      metrics_(metrics),
      forest_(PartsOf(model_), options) {}

DraftProposer::~DraftProposer() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
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
      absl::MutexLock lock(&mutex_);
      const auto has_reason = [this]()
                                  ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_stopping_ || !inbox_.empty(); };
      if (is_idle) mutex_.Await(absl::Condition(&has_reason));
      if (is_stopping_) return;
    }
    is_idle = !Step();
    const int64_t num_now = NumPreemptions();
    if (!is_idle) preemptions += (static_cast<double>(num_now - std::exchange(num_seen, num_now)) - preemptions) / 32;
    forest_.set_shares_cores(preemptions > kMaxPreemptions);
  }
}

bool DraftProposer::Step() {
  const bool had_mail = TakeMail();
  const DraftForest::Counters before = forest_.counters();
  const absl::Time begin = now_();
  const std::vector<DraftForest::SessionId> touched = forest_.Grow();
  if (!touched.empty()) MeasurePass(now_() - begin);
  CountWork(before);
  PublishGrown(touched);
  ShareNextPass();
  return had_mail || !touched.empty();
}

bool DraftProposer::TakeMail() {
  std::vector<std::shared_ptr<DraftMailbox>> inbox;
  {
    absl::MutexLock lock(&mutex_);
    inbox.swap(inbox_);
  }
  for (std::shared_ptr<DraftMailbox>& mailbox : inbox) {
    const DraftMailbox::Mail mail = mailbox->Collect();
    const auto [place, is_new] = session_ids_.try_emplace(mailbox.get());
    if (is_new) {
      place->second = forest_.Open(mailbox->introduction());
      drafting_[place->second] = {.mailbox = mailbox, .session_id = place->second};
    }
    const DraftForest::SessionId id = place->second;
    if (mail.is_closed) {
      forest_.Close(id);
      owed_.erase(id);
      drafting_.erase(id);
      session_ids_.erase(place);
      continue;
    }
    forest_.Append(id, mail.token_ids);
    forest_.Want(id, mail.tree_request);
    Note(mail, drafting_.at(id));
  }
  return !inbox.empty();
}

void DraftProposer::Note(const DraftMailbox::Mail& mail, Drafting& drafting) {
  const DraftForest::Session& session = forest_.Find(drafting.session_id);
  drafting.tree_request = mail.tree_request;
  drafting.asked_at = mail.asked_at;
  drafting.had_grown = session.tree.is_root_expanded();
  drafting.num_published = session.tree.num_expanded();
  owed_.erase(drafting.session_id);
  if (session.is_refused) {
    drafting.mailbox->Refuse();
    drafting.mailbox->Announce();
  } else if (mail.is_owed) {
    owed_.insert(drafting.session_id);
    // The tree may have grown beyond the snapshot, to where the tokens lead.
    if (drafting.had_grown && IsDue(drafting)) Publish(drafting);
  }
}

// Whether an owed answer, for which there is a tree, goes out as it is.
bool DraftProposer::IsDue(const Drafting& drafting) const {
  const DraftForest::Session& session = forest_.Find(drafting.session_id);
  if (session.samples || !forest_.WantsTreeRows(session)) return true;
  const Patience patience = {.step = drafting.tree_request.step,
                             .left = drafting.asked_at + drafting.tree_request.until_next_step - now_()};
  return !IsWorthAnotherPass(SnapshotOf(session), drafting.tree_request.node_budget, NextPass(), patience);
}

bool DraftProposer::IsWorthPublishing(const Drafting& drafting) const {
  const DraftForest::Session& session = forest_.Find(drafting.session_id);
  if (owed_.contains(drafting.session_id)) return IsDue(drafting);
  const bool has_doubled = session.tree.num_expanded() > 2 * drafting.num_published;
  return session.samples || has_doubled || !forest_.WantsTreeRows(session);
}

void DraftProposer::PublishGrown(std::span<const DraftForest::SessionId> touched) {
  // An answer that no pass helps goes as it is.
  std::vector<DraftForest::SessionId> stuck(owed_.begin(), owed_.end());
  std::erase_if(stuck, [&](DraftForest::SessionId id) { return std::ranges::count(touched, id) > 0; });
  for (const DraftForest::SessionId id : touched) {
    if (forest_.Find(id).tree.is_root_expanded() && IsWorthPublishing(drafting_.at(id))) Publish(drafting_.at(id));
  }
  for (const DraftForest::SessionId id : stuck) {
    if (forest_.Find(id).tree.is_root_expanded()) Publish(drafting_.at(id));
  }
}

void DraftProposer::Publish(Drafting& drafting) {
  const DraftForest::Session& session = forest_.Find(drafting.session_id);
  owed_.erase(drafting.session_id);
  drafting.num_published = session.tree.num_expanded();
  drafting.mailbox->Publish({.tree = SnapshotOf(session), .needed_no_pass = drafting.had_grown});
  drafting.mailbox->Announce();
}

// Trees of which answers are owed are young, and take the rows of a pass between them.
ExpectedPass DraftProposer::NextPass() const {
  const auto num_owed = std::max(static_cast<int32_t>(owed_.size()), 1);
  return {.num_rows = std::max(forest_.options().max_tree_rows / num_owed, 1), .duration = mean_pass_};
}

void DraftProposer::ShareNextPass() {
  absl::MutexLock lock(&mutex_);
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
}

std::unique_ptr<Session> DraftProposer::Open(const SessionIntroduction& introduction) {
  auto mailbox = std::make_shared<DraftMailbox>(introduction, [this](std::shared_ptr<DraftMailbox> self) {
    absl::MutexLock lock(&mutex_);
    inbox_.push_back(std::move(self));
  });
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
