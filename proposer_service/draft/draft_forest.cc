// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/draft_forest.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "kernels/check.h"
#include "proposer_service/draft/sampled_node.h"

namespace foretoken::proposer {
namespace {

using kernels::kKvBlockSize;

int32_t NumBlocks(int32_t num_positions) { return (num_positions + kKvBlockSize - 1) / kKvBlockSize; }

int32_t NumTreeBlocks(const DraftForest::Parts& parts, const DraftForestOptions& options) {
  const auto wanted = static_cast<int32_t>(options.tree_kv_fraction * static_cast<float>(parts.kv->num_blocks));
  return std::clamp(wanted, 1, parts.kv->num_blocks - 1);
}

uint64_t ContextHash(const DraftForest::Session& session, int32_t node_idx) {
  std::vector<int32_t> path;
  for (int32_t node = node_idx; node != GrowingTree::kRoot; node = session.tree.node(node).parent) {
    path.push_back(session.tree.node(node).child.token_id);
  }
  uint64_t hash = session.context_hash;
  for (auto token_id = path.rbegin(); token_id != path.rend(); ++token_id) hash = ExtendContextHash(hash, *token_id);
  return hash;
}

}  // namespace

// The forward batch of one pass, and the rows whose children the pass needs.
struct DraftForest::Pass {
  struct Branching {
    Session* session;
    int32_t node_idx;
  };
  model::ForwardBatch batch;
  std::vector<Branching> branching;  // as batch.logit_rows
  std::vector<kernels::RowToBranch> rows;
  std::vector<std::vector<uint32_t>> masks;  // that `rows` point to
  std::vector<SessionId> touched;

  void Branch(Session& session, int32_t node_idx, int32_t row, kernels::RowToBranch wanted) {
    wanted.logit_row = static_cast<int32_t>(batch.logit_rows.size());
    rows.push_back(wanted);
    batch.logit_rows.push_back(row);
    branching.push_back({&session, node_idx});
  }
};

DraftForest::DraftForest(const Parts& parts, const DraftForestOptions& options)
    : parts_(parts), options_(options), pool_(parts.kv->num_blocks - NumTreeBlocks(parts, options)) {
  FT_CHECK(options.max_tree_rows + options.max_context_rows <= parts.transformer->options().max_rows);
  const int32_t first_slot = pool_.num_blocks() * kKvBlockSize;
  for (int32_t slot = parts.kv->num_blocks * kKvBlockSize; slot-- > first_slot;) free_slots_.push_back(slot);
  num_tree_slots_ = static_cast<int32_t>(free_slots_.size());
}

DraftForest::SessionId DraftForest::Open(const SessionIntroduction& introduction) {
  auto session = std::make_unique<Session>();
  session->id = next_id_++;
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
  session.num_computed = 0;
}

void DraftForest::Refuse(Session& session) {
  Clear(session);
  session.is_refused = true;
}

// Takes blocks until the session has enough for num_positions. An idle session takes no blocks from other sessions.
bool DraftForest::Extend(Session& session, int32_t num_positions) {
  while (static_cast<int32_t>(session.blocks.size()) < NumBlocks(num_positions)) {
    const std::optional<int32_t> block = pool_.Allocate(model::Evict::kNo);
    if (block.has_value()) {
      session.blocks.push_back(*block);
    } else if (session.is_idle() || !ClearIdleSession()) {
      return false;
    }
  }
  return true;
}

void DraftForest::IdleUnaskedSessions() {
  constexpr uint64_t kRounds = 8;  // mean number of requests per session since the idle session's last one
  for (const auto& [id, session] : sessions_) {
    const bool is_unasked = num_requests_ - session->last_request > kRounds * sessions_.size();
    if (is_unasked && !WantsContextRows(*session)) session->tree_request = {};
  }
}

// Clears an idle session with blocks: the session that the verifier asked longest ago. False: no idle session has
// blocks.
bool DraftForest::ClearIdleSession() {
  Session* oldest = nullptr;
  for (const auto& [id, session] : sessions_) {
    const bool may_clear = session->is_idle() && !session->blocks.empty();
    if (may_clear && (oldest == nullptr || session->last_request < oldest->last_request)) oldest = session.get();
  }
  if (oldest == nullptr) return false;
  Clear(*oldest);
  return true;
}

void DraftForest::Append(SessionId id, std::span<const int32_t> token_ids) {
  Session& session = *sessions_.at(id);
  if (session.is_refused || token_ids.empty()) return;
  session.tree_request.allowed = session.root_allowed = {};
  const auto has_it = [this](int32_t token_id) { return token_id < parts_.transformer->config().vocab_size; };
  if (options_.learns_chances) Learn(session, token_ids);
  session.token_ids.insert(session.token_ids.end(), token_ids.begin(), token_ids.end());
  for (const int32_t token_id : token_ids) session.context_hash = ExtendContextHash(session.context_hash, token_id);
  const bool fits = session.size() <= parts_.transformer->options().max_positions;
  if (!fits || !std::all_of(token_ids.begin(), token_ids.end(), has_it)) return Refuse(session);
  const GrowingTree::Advanced advanced = session.tree.Advance(token_ids);
  free_slots_.insert(free_slots_.end(), advanced.freed_slots.begin(), advanced.freed_slots.end());
  MovePath(session, advanced.path_slots);
  free_slots_.insert(free_slots_.end(), advanced.path_slots.begin(), advanced.path_slots.end());
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
  parts_.transformer->MoveKv(*parts_.kv, moves);
  session.num_computed = num_computed;
}

void DraftForest::Want(SessionId id, const TreeRequest& tree_request) {
  Session& session = *sessions_.at(id);
  session.tree_request = tree_request;
  if (session.is_idle()) return;
  session.last_request = ++num_requests_;
  IdleUnaskedSessions();
  session.tree.SetNumSent(session.num_sent());
  if (!session.is_refused && !Extend(session, session.size())) Refuse(session);
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
    if (!hit.has_value()) return;
    at = session.tree.node(at).first_child + static_cast<int32_t>(*hit);
  }
}

bool DraftForest::WantsContextRows(const Session& session) const {
  return !session.is_idle() && !session.is_refused && session.num_missing() > 0;
}

bool DraftForest::WantsTreeRows(const Session& session) const {
  const std::optional<float> best = session.tree.BestWorth();
  return !session.is_idle() && !session.is_root_stale() && best.has_value() && *best >= MinWorth() &&
         session.tree.num_expanded() < options_.max_grown_nodes;
}

std::vector<DraftForest::SessionId> DraftForest::Grow() {
  Pass pass;
  AddContextRows(pass);
  AddTreeRows(pass);
  if (pass.batch.num_rows() > 0) Run(pass);
  return std::move(pass.touched);
}

void DraftForest::AddContextRows(Pass& pass) {
  std::vector<Session*> waiting;
  for (const auto& [id, session] : sessions_) {
    if (WantsContextRows(*session)) waiting.push_back(session.get());
  }
  std::stable_sort(waiting.begin(), waiting.end(),
                   [&](const Session* a, const Session* b) { return a->num_missing() < b->num_missing(); });
  int32_t num_free = options_.max_context_rows;
  for (Session* session : waiting) {
    if (num_free == 0) break;
    const int32_t num_rows = std::min(session->num_missing(), num_free);
    num_free -= num_rows;
    session->num_computed = session->size() - session->num_missing();
    const int32_t root_row = model::AppendSegment(
        {.block_table = session->blocks,
         .first_position = session->num_computed,
         .chain = std::span<const int32_t>(session->token_ids).subspan(session->num_computed, num_rows)},
        &pass.batch);
    session->num_computed += num_rows;
    pass.touched.push_back(session->id);
    counters_.num_context_rows += num_rows;
    if (session->num_computed == session->size()) {
      kernels::RowToBranch root = Branching(*session, GrowingTree::kRoot);
      const speculation::AllowedTokens& allowed = session->tree_request.allowed;
      if (!allowed.allow_any()) root.mask = pass.masks.emplace_back(allowed.Words(parts_.num_tokens)).data();
      pass.Branch(*session, GrowingTree::kRoot, root_row, root);
    }
  }
}

void DraftForest::AddTreeRows(Pass& pass) {
  using Offer = std::pair<float, Session*>;
  const auto is_worse = [](const Offer& a, const Offer& b) {
    return a.first != b.first ? a.first < b.first : a.second->id > b.second->id;
  };
  std::priority_queue<Offer, std::vector<Offer>, decltype(is_worse)> offers(is_worse);
  for (const auto& [id, session] : sessions_) {
    if (WantsTreeRows(*session)) offers.emplace(*session->tree.BestWorth(), session.get());
  }
  const int32_t max_positions = parts_.transformer->options().max_positions;
  ChosenNodes chosen;
  for (int32_t num_chosen = 0; num_chosen < options_.max_tree_rows && !offers.empty();) {
    Session& session = *offers.top().second;
    offers.pop();
    const std::optional<int32_t> slot = TakeSlot(session, chosen);
    if (!slot.has_value()) continue;
    const int32_t node_idx = session.tree.TakeBest();
    if (session.size() - 1 + session.tree.node(node_idx).depth < max_positions) {
      session.tree.SetSlot(node_idx, *slot);
      chosen[session.id].push_back(node_idx);
      ++num_chosen;
    } else {
      free_slots_.push_back(*slot);
    }
    const auto num_pending = static_cast<int32_t>(chosen[session.id].size());
    if (WantsTreeRows(session) && session.tree.num_expanded() + num_pending < options_.max_grown_nodes) {
      offers.emplace(*session.tree.BestWorth(), &session);
    }
  }
  for (const auto& [id, nodes] : chosen) {
    if (!nodes.empty()) AddSegment(*sessions_.at(id), nodes, pass);
  }
}

void DraftForest::AddSegment(Session& session, std::span<const int32_t> nodes, Pass& pass) {
  std::vector<std::vector<int32_t>> slots;
  std::vector<model::GrownRow> rows;
  for (const int32_t node_idx : nodes) slots.push_back(session.tree.PathSlots(node_idx));
  for (size_t i = 0; i < nodes.size(); ++i) {
    rows.push_back({.token_id = session.tree.node(nodes[i]).child.token_id, .ancestor_slots = slots[i]});
  }
  const int32_t first_row = model::AppendGrownSegment(
      {.block_table = session.blocks, .chain_len = session.size(), .rows = rows}, &pass.batch);
  for (size_t i = 0; i < nodes.size(); ++i) {
    pass.Branch(session, nodes[i], first_row + static_cast<int32_t>(i), Branching(session, nodes[i]));
  }
  pass.touched.push_back(session.id);
  counters_.num_tree_rows += nodes.size();
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

void DraftForest::Run(Pass& pass) {
  ++counters_.num_passes;
  const kernels::ConstTensorView logits = parts_.transformer->Forward(pass.batch, *parts_.kv);
  std::vector<kernels::RowChildren> children(pass.rows.size());
  if (!pass.rows.empty()) {
    parts_.transformer->backend().BranchRows(
        {.logits = logits, .num_tokens = parts_.num_tokens, .rows = pass.rows, .children = children});
  }
  // Also without rows: the caller times each pass, and passes must not queue up on the device.
  parts_.transformer->Synchronize();
  for (size_t i = 0; i < children.size(); ++i) {
    Expand(*pass.branching[i].session, pass.branching[i].node_idx, children[i].children);
  }
}

void DraftForest::Expand(Session& session, int32_t node_idx, std::span<const kernels::ScoredToken> ranked) {
  SampledNode sampled;
  if (session.samples) {
    sampled = SampleChildren({.distribution = ranked,
                              .num_children = options_.num_sampled_children,
                              .seed = session.sampling.seed,
                              .sample_index = session.sampling.sample_index,
                              .context_hash = ContextHash(session, node_idx),
                              .salt = options_.sampling_salt});
    ranked = sampled.children;
  }
  std::vector<float> scores;
  for (const kernels::ScoredToken& token : ranked) scores.push_back(token.score);
  const std::vector<float> chances = ChancesOf(session).Chances(scores);
  std::vector<GrowingTree::Child> children;
  for (size_t i = 0; i < ranked.size(); ++i) {
    children.push_back({.token_id = ranked[i].token_id, .score = scores[i], .chance = chances[i]});
  }
  if (node_idx == GrowingTree::kRoot) session.root_allowed = session.tree_request.allowed;
  if (!session.tree.node(node_idx).is_expanded) {
    session.tree.Expand(node_idx, children, std::move(sampled.draft));
  } else {
    const std::vector<int32_t> freed = session.tree.ReplaceRootChildren(children, std::move(sampled.draft));
    free_slots_.insert(free_slots_.end(), freed.begin(), freed.end());
  }
}

ChanceModel& DraftForest::ChancesOf(const Session& session) {
  const Regime regime = session.samples                ? Regime::kSampled
                        : session.sampling.is_greedy() ? Regime::kGreedy
                                                       : Regime::kKeyedDraw;
  return chances_[static_cast<size_t>(regime)];
}

kernels::RowToBranch DraftForest::Branching(const Session& session, int32_t node_idx) const {
  // The children's chances sum to at most one, so no more children than this can all be worth expanding.
  const float num_worth = session.tree.node(node_idx).path_chance / std::max(MinWorth(), 1e-6f);
  const auto max_children = static_cast<float>(std::max(options_.max_children, options_.num_children));
  const auto num_children = std::max(options_.num_children, static_cast<int32_t>(std::min(num_worth, max_children)));
  return {.sampling = session.sampling,
          .t = static_cast<uint32_t>(session.size() + session.tree.node(node_idx).depth),
          .num_children = session.samples ? options_.num_distribution_tokens : num_children,
          .order = session.samples ? kernels::BranchOrder::kDraftProb : kernels::BranchOrder::kKeyedDraw};
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
    FT_CHECK(session->is_refused || session->is_idle() || num_own_blocks == NumBlocks(session->size()));
    FT_CHECK(session->is_refused || session->size() == 0 ||
             session->tree.is_root_expanded() == (session->num_computed == session->size()));
  }
  FT_CHECK(static_cast<int32_t>(num_slots) == num_tree_slots_ && num_blocks == pool_.num_blocks());
}

}  // namespace foretoken::proposer
