// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft_proposer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace foretoken::proposer {
namespace {

// Nodes of a snapshot: what is grown beyond them is too unlikely to be the next root.
constexpr int32_t kSnapshotNodes = speculation::kMaxTreeNodes;

speculation::TokenTree SnapshotOf(const Garden::Plant& plant) {
  return plant.tree.Snapshot(plant.size(), kSnapshotNodes);
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": expected ", least, " to ", most, ", got ", value));
}

Garden::Parts PartsOf(const model::RunnableModel& model) {
  return {.transformer = model.transformer.get(), .kv = model.kv.view, .num_tokens = model.num_tokens()};
}

}  // namespace

absl::Status Validate(const DraftOptions& options) {
  constexpr int32_t kMaxRows = 4096;
  if (options.model_directory.empty()) {
    return absl::InvalidArgumentError("model: expected a directory with a checkpoint, got none");
  }
  FT_RETURN_IF_ERROR(CheckRange("threads", options.num_threads, 0, 4096));
  if (options.kv_cache_mb) FT_RETURN_IF_ERROR(CheckRange("kv_cache_mb", *options.kv_cache_mb, 1, 1 << 30));
  const GardenOptions& garden = options.garden;
  FT_RETURN_IF_ERROR(CheckRange("draft_children", garden.num_children, 1, 256));
  FT_RETURN_IF_ERROR(CheckRange("draft_tree_rows", garden.max_tree_rows, 1, kMaxRows));
  FT_RETURN_IF_ERROR(CheckRange("draft_context_rows", garden.max_context_rows, 1, kMaxRows));
  FT_RETURN_IF_ERROR(CheckRange("draft_grown_nodes", garden.max_grown_nodes, 0, 1 << 16));
  if (!(garden.min_path_chance >= 0 && garden.min_path_chance <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("draft_min_path_chance: expected 0 to 1, got ", garden.min_path_chance));
  }
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
  FT_ASSIGN_OR_RETURN(
      model::OpenedModel opened,
      model::OpenModel(
          {.directory = options.model_directory,
           .backend = {.device = options.device, .num_threads = options.num_threads, .isa = options.cpu_isa}}));
  FT_ASSIGN_OR_RETURN(const model::ContextPlan context,
                      model::PlanContext({.kv_cache_mb = options.kv_cache_mb}, opened.config));
  FT_ASSIGN_OR_RETURN(
      model::RunnableModel runnable,
      model::LoadModel(std::move(opened),
                       {.max_rows = options.garden.max_tree_rows + options.garden.max_context_rows, .context = context},
                       nullptr));
  return std::make_unique<DraftProposer>(std::move(runnable), options.garden, metrics);
}

DraftProposer::DraftProposer(model::RunnableModel model, const GardenOptions& options, telemetry::Metrics& metrics,
                             std::function<absl::Time()> now)
    : model_(std::move(model)),
      now_(std::move(now)),
      description_{
          .method = "draft",
          .vocabulary_fingerprint = base::ToHex(tokenizer::VocabularyFingerprint(model_.tokenizer.vocabulary())),
          .token_digests = tokenizer::TokenDigests(model_.tokenizer.vocabulary()),
          .max_context_tokens = model_.transformer->options().max_positions},
      metrics_(metrics),
      garden_(PartsOf(model_), options) {}

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
  for (bool is_idle = false;;) {
    {
      absl::MutexLock lock(&mutex_);
      const auto has_reason = [this]()
                                  ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_stopping_ || !inbox_.empty(); };
      if (is_idle) mutex_.Await(absl::Condition(&has_reason));
      if (is_stopping_) return;
    }
    is_idle = !Step();
  }
}

bool DraftProposer::Step() {
  const bool had_mail = TakeMail();
  const Garden::Counters before = garden_.counters();
  const std::vector<Garden::PlantId> touched = garden_.Grow();
  CountWork(before);
  Publish(touched);
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
    const auto [place, is_new] = plant_ids_.try_emplace(mailbox.get());
    if (is_new) {
      place->second = garden_.Open(mailbox->introduction());
      planted_[place->second] = {.mailbox = mailbox, .plant_id = place->second};
    }
    const Garden::PlantId id = place->second;
    if (mail.is_closed) {
      garden_.Close(id);
      planted_.erase(id);
      plant_ids_.erase(place);
      continue;
    }
    garden_.Append(id, mail.token_ids);
    garden_.Want(id, mail.wish);
    const Garden::Plant& plant = garden_.Find(id);
    std::optional<int32_t>& num_published = planted_.at(id).num_published;
    num_published.reset();
    if (plant.tree.is_root_expanded()) {
      num_published = plant.tree.num_expanded();
      // The tree had grown beyond the snapshot, and the tokens lead there.
      if (!mail.has_tree && !plant.sleeps) {
        mailbox->Publish({.tree = SnapshotOf(plant), .needed_no_pass = true});
        mailbox->Announce();
      }
    }
    if (plant.is_refused) {
      mailbox->Refuse();
      mailbox->Announce();
    }
  }
  return !inbox.empty();
}

void DraftProposer::Publish(std::span<const Garden::PlantId> touched) {
  for (const Garden::PlantId id : touched) {
    const Garden::Plant& plant = garden_.Find(id);
    Planted& planted = planted_.at(id);
    if (!plant.tree.is_root_expanded()) continue;
    const int32_t num_expanded = plant.tree.num_expanded();
    const bool has_doubled = !planted.num_published.has_value() || num_expanded > 2 * *planted.num_published;
    if (!has_doubled && garden_.WantsTreeRows(plant)) continue;
    planted.num_published = num_expanded;
    planted.mailbox->Publish({.tree = SnapshotOf(plant)});
    planted.mailbox->Announce();
  }
}

void DraftProposer::CountWork(const Garden::Counters& before) {
  const Garden::Counters& after = garden_.counters();
  metrics_.passes.Increment(static_cast<double>(after.num_passes - before.num_passes));
  metrics_.context_rows.Increment(static_cast<double>(after.num_context_rows - before.num_context_rows));
  metrics_.tree_rows.Increment(static_cast<double>(after.num_tree_rows - before.num_tree_rows));
}

absl::Status DraftProposer::AcceptVocabulary(absl::string_view fingerprint) {
  if (fingerprint.empty() || fingerprint == description_.vocabulary_fingerprint) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("vocabulary_fingerprint: expected the draft model's ",
                                                    description_.vocabulary_fingerprint, ", got ", fingerprint));
}

std::unique_ptr<Session> DraftProposer::Open(const SessionIntroduction& introduction) {
  auto mailbox = std::make_shared<DraftMailbox>(introduction, [this](std::shared_ptr<DraftMailbox> self) {
    absl::MutexLock lock(&mutex_);
    inbox_.push_back(std::move(self));
  });
  return std::make_unique<DraftSession>(std::move(mailbox), now_);
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
