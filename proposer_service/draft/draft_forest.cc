// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/draft_forest.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/check.h"
#include "proposer_service/draft/sampled_node.h"

namespace foretoken::proposer {
namespace {

using kernels::kKvBlockSize;

int32_t NumBlocks(int32_t num_positions) { return (num_positions + kKvBlockSize - 1) / kKvBlockSize; }

int32_t NumTreeBlocks(int32_t num_blocks, const DraftForestOptions& options) {
  const auto wanted = static_cast<int32_t>(options.tree_kv_fraction * static_cast<float>(num_blocks));
  return std::clamp(wanted, 1, num_blocks - 1);
}

}  // namespace

DraftForest::DraftForest(DraftModel& model, const DraftForestOptions& options)
    : model_(model),
      options_(options),
      pool_(model.limits().num_blocks - NumTreeBlocks(model.limits().num_blocks, options)) {
  FT_CHECK(options.max_tree_rows + options.max_context_rows <= model.limits().max_rows);
  const int32_t first_slot = pool_.num_blocks() * kKvBlockSize;
  for (int32_t slot = model.limits().num_blocks * kKvBlockSize; slot-- > first_slot;) free_slots_.push_back(slot);
  num_tree_slots_ = static_cast<int32_t>(free_slots_.size());
}

DraftForest::SessionId DraftForest::Open(const SessionIntroduction& introduction) {
  auto session = std::make_unique<Session>();
  session->id = next_id_++;
  session->last_request = num_requests_;
  session->reads_features = model_.limits().feature_width > 0;
  session->sampling.temperature = introduction.temperature;
  session->sampling.top_k = static_cast<int32_t>(introduction.top_k);
  session->sampling.top_p = introduction.top_p;
  session->sampling.min_p = introduction.min_p;
  session->sampling.seed = introduction.seed;
  session->sampling.sample_index = introduction.sample_index;
  session->samples =
      introduction.rule == kernels::VerificationRule::kRejectionSampling && !session->sampling.is_greedy();
  return sessions_.emplace(session->id, std::move(session)).first->first;
}

void DraftForest::Close(SessionId id) {
  Clear(*sessions_.at(id));
  sessions_.erase(id);
}

void DraftForest::Clear(Session& session) {
  for (const int32_t block : session.blocks) pool_.Release(block);
  session.blocks.clear();
  for (const int32_t slot : session.tree.Clear()) free_slots_.push_back(slot);
  session.tree = GrowingTree(session.num_sent());
  session.num_computed = session.num_settled = 0;
}

void DraftForest::Refuse(Session& session) {
  Clear(session);
  session.features.reset();
  session.is_refused = true;
}

void DraftForest::Forget(Session& session) {
  Clear(session);
  session.features.reset();
  session.is_forgotten = true;
}

int32_t DraftForest::max_context_tokens() const {
  return std::min(model_.limits().max_positions, pool_.num_blocks() * kKvBlockSize);
}

// Takes blocks until the session has enough for num_positions. An idle session takes no blocks from other sessions.
// False: there are too few, and no session has lost any.
bool DraftForest::Extend(Session& session, int32_t num_positions) {
  const int32_t num_lacking = NumBlocks(num_positions) - static_cast<int32_t>(session.blocks.size());
  if (num_lacking > pool_.num_free()) {
    if (session.is_idle() || num_lacking > pool_.num_free() + NumIdleBlocks()) return false;
  }
  while (static_cast<int32_t>(session.blocks.size()) < NumBlocks(num_positions)) {
    const std::optional<int32_t> block = pool_.Allocate(model::Evict::kNo);
    if (block.has_value()) {
      session.blocks.push_back(*block);
    } else {
      ClearIdleSession();
    }
  }
  return true;
}

int32_t DraftForest::NumIdleBlocks() const {
  size_t num_blocks = 0;
  for (const auto& [id, session] : sessions_) num_blocks += session->is_idle() ? session->blocks.size() : 0;
  return static_cast<int32_t>(num_blocks);
}

// Looks once in as many requests as there are sessions, because a look visits all of them.
void DraftForest::IdleUnaskedSessions() {
  constexpr uint64_t kRounds = 8;  // mean number of requests per session since the idle session's last one
  if (num_requests_ < next_look_) return;
  next_look_ = num_requests_ + sessions_.size();
  for (const auto& [id, session] : sessions_) {
    const bool is_unasked = num_requests_ - session->last_request > kRounds * sessions_.size();
    if (is_unasked && !WantsContextRows(*session)) session->tree_request = {};
  }
}

// Clears an idle session with blocks: the session that the verifier asked longest ago. If the model reads features, the
// session cannot be computed again.
void DraftForest::ClearIdleSession() {
  Session* oldest = nullptr;
  SessionId oldest_id = 0;
  for (const auto& [id, session] : sessions_) {
    const bool may_clear = session->is_idle() && !session->blocks.empty();
    if (!may_clear || (oldest != nullptr && session->last_request >= oldest->last_request)) continue;
    oldest = session.get();
    oldest_id = id;
  }
  FT_CHECK(oldest != nullptr);
  if (!oldest->reads_features) return Clear(*oldest);
  Forget(*oldest);
  forgotten_.push_back(oldest_id);
}

void DraftForest::Append(SessionId id, std::span<const int32_t> token_ids) {
  Session& session = *sessions_.at(id);
  if (session.is_out() || token_ids.empty()) return;
  session.tree_request.allowed = session.root_allowed = {};
  const auto has_it = [this](int32_t token_id) { return token_id < model_.limits().vocab_size; };
  if (options_.learns_chances) Learn(session, token_ids);
  session.token_ids.insert(session.token_ids.end(), token_ids.begin(), token_ids.end());
  for (const int32_t token_id : token_ids) session.context_hash = ExtendContextHash(session.context_hash, token_id);
  const bool fits = session.size() <= max_context_tokens();
  if (!fits || !std::all_of(token_ids.begin(), token_ids.end(), has_it)) return Refuse(session);
  const GrowingTree::Advanced advanced = session.tree.Advance(token_ids);
  free_slots_.insert(free_slots_.end(), advanced.freed_slots.begin(), advanced.freed_slots.end());
  MovePath(session, advanced.path_slots);
  LimitDepth(session);
  free_slots_.insert(free_slots_.end(), advanced.path_slots.begin(), advanced.path_slots.end());
}

// A model may predict only some steps ahead of the row that the tree grew from.
void DraftForest::LimitDepth(Session& session) const {
  const int32_t max_steps = model_.limits().max_steps;
  if (max_steps == std::numeric_limits<int32_t>::max()) return;
  session.tree.SetMaxDepth(max_steps - session.num_predicted());
}

void DraftForest::AppendFeatures(SessionId id, uint64_t first_position, std::span<const uint16_t> values) {
  Session& session = *sessions_.at(id);
  if (session.is_out() || !session.reads_features || values.empty()) return;
  if (!session.features.has_value()) {  // the first row has the token after the first feature's token
    session.features.emplace(model_.limits().feature_width);
    session.num_skipped = std::min<uint64_t>(first_position + 1, session.token_ids.size());
    session.token_ids.erase(session.token_ids.begin(),
                            session.token_ids.begin() + static_cast<std::ptrdiff_t>(session.num_skipped));
  }
  session.features->Append(values);
}

// Moves the K/V of a committed path from its slots to the blocks after the computed positions. If no block is free, the
// session loses its tree, because the tree's K/V would follow a gap.
void DraftForest::MovePath(Session& session, std::span<const int32_t> slots) {
  if (slots.empty()) return;
  const int32_t num_computed = session.num_computed + static_cast<int32_t>(slots.size());
  if (!Extend(session, num_computed)) {
    for (const int32_t slot : session.tree.Clear()) free_slots_.push_back(slot);
    session.tree = GrowingTree(session.num_sent());
    return;
  }
  std::vector<kernels::KvMove> moves;
  for (const int32_t slot : slots) {
    const int32_t position = session.num_computed + static_cast<int32_t>(moves.size());
    moves.push_back({.from_slot = slot, .to_slot = model::SlotOf(session.blocks, position)});
  }
  model_.Move(moves);
  session.num_computed = num_computed;
  if (!session.reads_features) session.num_settled = num_computed;
}

void DraftForest::Want(SessionId id, const TreeRequest& tree_request) {
  Session& session = *sessions_.at(id);
  session.tree_request = tree_request;
  if (session.is_idle()) return;
  session.last_request = ++num_requests_;
  IdleUnaskedSessions();
  session.tree.SetNumSent(session.num_sent());
  if (session.is_out() || session.awaits_first_feature()) return;
  if (!Extend(session, session.size())) Refuse(session);
}

void DraftForest::Learn(const Session& session, std::span<const int32_t> committed) {
  int32_t at = GrowingTree::kRoot;
  for (const int32_t token_id : committed) {
    const std::span<const GrowingTree::Node> children = session.tree.Children(at);
    if (children.empty()) return;
    std::vector<float> scores;
    std::optional<size_t> hit;
    for (const GrowingTree::Node& child : children) {
      if (child.child.token_id == token_id) hit = scores.size();
      scores.push_back(child.child.score);
    }
    ChancesOf(session).Observe(scores, hit);
    if (at == GrowingTree::kRoot && session.num_provisional() == 0) {
      ++counters_.num_tried_roots;
      counters_.num_hit_roots += hit.has_value() && *hit < Counters::kBestChildren ? 1 : 0;
    }
    if (!hit.has_value()) return;
    at = session.tree.node(at).first_child + static_cast<int32_t>(*hit);
  }
}

// The forest evicts an idle session's tree first, for any session.
bool DraftForest::EvictTreeFor(const Session& session, const ChosenNodes& chosen) {
  const auto is_older = [](const Session& a, const Session& b) {
    return a.is_idle() != b.is_idle() ? a.is_idle() : a.last_request < b.last_request;
  };
  const auto num_active = std::ranges::count_if(sessions_, [](const auto& entry) { return !entry.second->is_idle(); });
  const bool has_less_than_its_share = session.tree.num_expanded() * num_active < num_tree_slots_;
  Session* oldest = nullptr;
  for (const auto& [id, other] : sessions_) {
    const bool has_claim = other->is_idle() || has_less_than_its_share;
    const bool may_evict =
        has_claim && other->tree.num_expanded() > 0 && !chosen.contains(id) && is_older(*other, session);
    if (may_evict && (oldest == nullptr || is_older(*other, *oldest))) oldest = other.get();
  }
  if (oldest == nullptr) return false;
  for (const int32_t slot : oldest->tree.Clear()) free_slots_.push_back(slot);
  ++counters_.num_evicted_trees;
  return true;
}

std::optional<int32_t> DraftForest::TakeSlot(const Session& session, const ChosenNodes& chosen) {
  if (free_slots_.empty() && !EvictTreeFor(session, chosen)) return std::nullopt;
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void DraftForest::CheckIntegrity() const {
  pool_.CheckIntegrity();
  size_t num_slots = free_slots_.size();
  int32_t num_blocks = pool_.num_free();
  for (const auto& [id, session] : sessions_) {
    session->tree.CheckIntegrity();
    num_blocks += static_cast<int32_t>(session->blocks.size());
    for (int32_t i = 0; i < session->tree.num_nodes(); ++i) num_slots += session->tree.node(i).slot.has_value() ? 1 : 0;
    const auto num_own_blocks = static_cast<int32_t>(session->blocks.size());
    FT_CHECK(num_own_blocks >= NumBlocks(session->num_computed));
    FT_CHECK(session->num_settled <= session->num_computed && session->num_computed <= session->size());
    FT_CHECK(session->reads_features || session->num_settled == session->num_computed);
    const bool may_lack_blocks = session->is_out() || session->is_idle() || session->awaits_first_feature();
    FT_CHECK(may_lack_blocks || num_own_blocks == NumBlocks(session->size()));
    FT_CHECK(session->is_out() || session->size() == 0 ||
             session->tree.is_root_expanded() == (session->num_computed == session->size()));
  }
  FT_CHECK(static_cast<int32_t>(num_slots) == num_tree_slots_ && num_blocks == pool_.num_blocks());
}

}  // namespace foretoken::proposer
