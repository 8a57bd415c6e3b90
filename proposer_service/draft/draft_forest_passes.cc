// SPDX-License-Identifier: Apache-2.0
// The passes of a forest: which rows a pass computes, and what becomes of its logits.
#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

#include "kernels/check.h"
#include "proposer_service/draft/draft_forest.h"
#include "proposer_service/draft/sampled_node.h"

namespace foretoken::proposer {
namespace {

// Idle sessions wait until they have so many rows together. Each row's feature takes the stream's credit meanwhile.
constexpr int32_t kEarlyRows = 64;

// The context rows of a pass that the session that has waited longest gets, if it needs them.
int32_t OldestRows(const DraftForestOptions& options) { return (options.max_context_rows + 3) / 4; }

uint64_t ContextHash(const DraftForest::Session& session, int32_t node_idx) {
  std::vector<int32_t> path;
  for (int32_t node = node_idx; node != GrowingTree::kRoot; node = session.tree.node(node).parent) {
    path.push_back(session.tree.node(node).child.token_id);
  }
  uint64_t hash = session.context_hash;
  for (auto token_id = path.rbegin(); token_id != path.rend(); ++token_id) hash = ExtendContextHash(hash, *token_id);
  return hash;
}

// The best child gets the model's own estimate; the chances of the others keep their ratios, and leave the sum at
// most 1.
void MatchConfidence(float confidence, std::span<float> chances) {
  if (chances.empty() || !(confidence > 0 && confidence < 1)) return;
  const float others = std::accumulate(chances.begin() + 1, chances.end(), 0.0f);
  const float factor = confidence / chances[0];
  const float scale = others > 0 ? std::min(factor, (1 - confidence) / others) : 0;
  chances[0] = confidence;
  for (float& chance : chances.subspan(1)) chance *= scale;
}

}  // namespace

// The rows of one pass, and which of them need children.
struct DraftForest::Pass {
  struct Branching {
    Session* session;
    int32_t node_idx;
  };
  DraftPass rows;
  std::vector<Branching> branching;  // as rows.batch.logit_rows
  std::vector<kernels::RowToBranch> wanted;
  std::vector<std::vector<uint32_t>> masks;  // that `wanted` points to
  std::vector<SessionId> touched;

  void Branch(Session& session, int32_t node_idx, int32_t row, kernels::RowToBranch branch) {
    branch.logit_row = static_cast<int32_t>(rows.batch.logit_rows.size());
    wanted.push_back(branch);
    rows.batch.logit_rows.push_back(row);
    branching.push_back({&session, node_idx});
  }
};

bool DraftForest::WantsContextRows(const Session& session) const {
  return !session.is_idle() && !session.is_out() && session.num_missing() > 0;
}

bool DraftForest::WantsTreeRows(const Session& session) const {
  const std::optional<float> best = session.tree.BestWorth();
  return !session.is_idle() && !session.is_root_stale() && !WantsContextRows(session) && best.has_value() &&
         *best >= MinWorth() && session.tree.num_expanded() < options_.max_grown_nodes;
}

std::vector<DraftForest::SessionId> DraftForest::Grow() {
  Pass pass;
  AddContextRows(pass);
  AddTreeRows(pass);
  if (pass.rows.batch.num_rows() > 0) Run(pass);
  return std::move(pass.touched);
}

void DraftForest::AddContextRows(Pass& pass) {
  std::vector<Session*> waiting;
  const Session* oldest = nullptr;
  for (const auto& [id, session] : sessions_) {
    if (!WantsContextRows(*session)) {
      session->waits_since.reset();
      continue;
    }
    waiting.push_back(session.get());
    if (!session->waits_since.has_value()) session->waits_since = counters_.num_passes;
    if (oldest == nullptr || session->waits_since < oldest->waits_since) oldest = session.get();
  }
  std::stable_sort(waiting.begin(), waiting.end(),
                   [&](const Session* a, const Session* b) { return a->num_missing() < b->num_missing(); });
  const int32_t num_kept = oldest == nullptr ? 0 : std::min(oldest->num_missing(), OldestRows(options_));
  int32_t num_free = options_.max_context_rows - num_kept;
  for (Session* session : waiting) {
    const int32_t num_own = session == oldest ? num_kept : 0;
    const int32_t num_rows = std::min(session->num_missing(), num_free + num_own);
    if (num_rows == 0) continue;
    num_free -= num_rows - num_own;
    const bool settles_root = session->num_provisional() > 0 && session->first_missing() + num_rows == session->size();
    if (settles_root) {  // the nodes below were grown without these features
      const std::vector<int32_t> freed = session->tree.Clear();
      free_slots_.insert(free_slots_.end(), freed.begin(), freed.end());
    }
    const int32_t last_row = AddContext(*session, num_rows, pass);
    pass.touched.push_back(session->id);
    counters_.num_context_rows += num_rows;
    if (session->num_missing() == 0) session->waits_since.reset();
    if (session->num_settled == session->size()) {
      kernels::RowToBranch root = Branching(*session, GrowingTree::kRoot);
      const speculation::AllowedTokens& allowed = session->tree_request.allowed;
      if (!allowed.allow_any()) {
        root.mask = pass.masks.emplace_back(allowed.Words(model_.limits().num_tokens)).data();
      }
      pass.Branch(*session, GrowingTree::kRoot, last_row, root);
    }
  }
  AddEarlyRows(num_free, pass);
}

void DraftForest::AddEarlyRows(int32_t num_free, Pass& pass) {
  int32_t num_waiting = 0;
  for (const auto& [id, session] : sessions_) num_waiting += session->num_early();
  if (num_waiting < std::min(kEarlyRows, options_.max_context_rows)) return;
  for (const auto& [id, session] : sessions_) {
    const int32_t num_rows = std::min(session->num_early(), num_free);
    if (num_rows == 0) continue;
    pass.touched.push_back(id);
    if (!Extend(*session, session->num_settled + num_rows)) {
      Forget(*session);
      continue;
    }
    num_free -= num_rows;
    AddContext(*session, num_rows, pass);
    counters_.num_context_rows += num_rows;
  }
}

// Adds the first missing rows of a context. Returns the last row.
int32_t DraftForest::AddContext(Session& session, int32_t num_rows, Pass& pass) {
  const int32_t first = session.first_missing();
  const int32_t last_row =
      model::AppendSegment({.block_table = session.blocks,
                            .first_position = first,
                            .chain = std::span<const int32_t>(session.token_ids).subspan(first, num_rows)},
                           &pass.rows.batch);
  pass.rows.steps.resize(pass.rows.batch.num_rows(), 0);
  if (session.features.has_value()) {
    for (int32_t row = last_row + 1 - num_rows; row <= last_row; ++row) pass.rows.given_rows.push_back(row);
    const std::vector<uint16_t> taken = session.features->Take(first, num_rows);
    pass.rows.given_features.insert(pass.rows.given_features.end(), taken.begin(), taken.end());
  }
  session.num_settled = first + num_rows;
  session.num_computed = std::max(session.num_computed, session.num_settled);
  if (session.num_settled == session.size()) session.grown_from_row = session.size() - 1;
  LimitDepth(session);
  return last_row;
}

void DraftForest::AddTreeRows(Pass& pass) {
  using Offer = std::pair<float, Session*>;
  const auto is_worse = [](const Offer& a, const Offer& b) {
    return a.first != b.first ? a.first < b.first : a.second->id > b.second->id;
  };
  std::priority_queue<Offer, std::vector<Offer>, decltype(is_worse)> offers(is_worse);
  for (const auto& [id, session] : sessions_) {
    const bool has_context_rows = std::ranges::count(pass.touched, id) > 0;  // the root's children may change
    if (!has_context_rows && WantsTreeRows(*session)) offers.emplace(*session->tree.BestWorth(), session.get());
  }
  const int32_t max_positions = model_.limits().max_positions;
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
      {.block_table = session.blocks, .chain_len = session.size(), .rows = rows}, &pass.rows.batch);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t row = first_row + static_cast<int32_t>(i);
    pass.rows.steps.push_back(session.num_predicted() + session.tree.node(nodes[i]).depth);
    if (session.reads_features) {
      const bool is_below_root = slots[i].size() == 1;
      pass.rows.predicted_rows.push_back(row);
      pass.rows.parent_slots.push_back(is_below_root ? model::SlotOf(session.blocks, session.size() - 1)
                                                     : slots[i][slots[i].size() - 2]);
    }
    pass.Branch(session, nodes[i], row, Branching(session, nodes[i]));
  }
  pass.touched.push_back(session.id);
  counters_.num_tree_rows += nodes.size();
}

void DraftForest::Run(Pass& pass) {
  ++counters_.num_passes;
  const kernels::ConstTensorView logits = model_.Forward(pass.rows);
  std::vector<kernels::RowChildren> children(pass.wanted.size());
  if (!pass.wanted.empty()) {
    model_.backend().BranchRows(
        {.logits = logits, .num_tokens = model_.limits().num_tokens, .rows = pass.wanted, .children = children});
  }
  // Also without rows: the caller times each pass, and passes must not queue up on the device.
  model_.Synchronize();
  const std::span<const float> confidences = model_.confidences();
  for (size_t i = 0; i < children.size(); ++i) {
    const std::optional<float> confidence = confidences.empty() ? std::nullopt : std::optional(confidences[i]);
    Expand(*pass.branching[i].session, pass.branching[i].node_idx, children[i].children, confidence);
  }
}

void DraftForest::Expand(Session& session, int32_t node_idx, std::span<const kernels::ScoredToken> ranked,
                         std::optional<float> confidence) {
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
  const float scale = ScoreScale(session);
  std::vector<float> scores;
  for (const kernels::ScoredToken& token : ranked) scores.push_back(scale * token.score);
  std::vector<float> chances = ChancesOf(session).Chances(scores);
  if (confidence.has_value() && !session.samples) MatchConfidence(*confidence, chances);
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

// A keyed score is logit / temperature + noise. At a low temperature the scores of two tokens are far apart, and so are
// the draft's score and the target's score of one token: a wide gap says no more there than a narrow one elsewhere.
// Scores times the temperature are alike at all temperatures, so that one model of chances serves all sessions.
float DraftForest::ScoreScale(const Session& session) {
  const bool is_keyed = !session.samples && !session.sampling.is_greedy();
  return is_keyed ? std::min(session.sampling.temperature, 1.0f) : 1.0f;
}

kernels::RowToBranch DraftForest::Branching(const Session& session, int32_t node_idx) const {
  // The children's chances sum to at most one, so no more children than this can all be worth expanding.
  const float num_worth = session.tree.node(node_idx).path_chance / std::max(MinWorth(), 1e-6f);
  const auto max_children = static_cast<float>(std::max(options_.max_children, options_.num_children));
  const auto num_children = std::max(options_.num_children, static_cast<int32_t>(std::min(num_worth, max_children)));
  return {.sampling = session.sampling,
          .t = static_cast<uint32_t>(session.position() + session.tree.node(node_idx).depth),
          .num_children = session.samples ? options_.num_distribution_tokens : num_children,
          .order = session.samples ? kernels::BranchOrder::kDraftProb : kernels::BranchOrder::kKeyedDraw};
}

}  // namespace foretoken::proposer
