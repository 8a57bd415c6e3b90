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

int32_t NumTreeBlocks(const Garden::Parts& parts, const GardenOptions& options) {
  const auto wanted = static_cast<int32_t>(options.tree_kv_fraction * static_cast<float>(parts.kv->num_blocks));
  return std::clamp(wanted, 1, parts.kv->num_blocks - 1);
}

uint64_t ContextHash(const Garden::Plant& plant, int32_t node_idx) {
  std::vector<int32_t> path;
  for (int32_t node = node_idx; node != GrowingTree::kRoot; node = plant.tree.node(node).parent) {
    path.push_back(plant.tree.node(node).child.token_id);
  }
  uint64_t hash = plant.context_hash;
  for (auto token_id = path.rbegin(); token_id != path.rend(); ++token_id) hash = ExtendContextHash(hash, *token_id);
  return hash;
}

}  // namespace

// A row whose children are wanted.
struct Garden::Pass {
  struct Branching {
    Plant* plant;
    int32_t node_idx;
  };
  model::ForwardBatch batch;
  std::vector<Branching> branching;  // as batch.logit_rows
  std::vector<kernels::RowToBranch> rows;
  std::vector<PlantId> touched;

  void Branch(Plant& plant, int32_t node_idx, int32_t row, kernels::RowToBranch wanted) {
    wanted.logit_row = static_cast<int32_t>(batch.logit_rows.size());
    rows.push_back(wanted);
    batch.logit_rows.push_back(row);
    branching.push_back({&plant, node_idx});
  }
};

Garden::Garden(const Parts& parts, const GardenOptions& options)
    : parts_(parts), options_(options), pool_(parts.kv->num_blocks - NumTreeBlocks(parts, options)) {
  FT_CHECK(options.max_tree_rows + options.max_context_rows <= parts.transformer->options().max_rows);
  const int32_t first_slot = pool_.num_blocks() * kKvBlockSize;
  for (int32_t slot = parts.kv->num_blocks * kKvBlockSize; slot-- > first_slot;) free_slots_.push_back(slot);
  num_tree_slots_ = static_cast<int32_t>(free_slots_.size());
}

Garden::PlantId Garden::Open(const SessionIntroduction& introduction) {
  auto plant = std::make_unique<Plant>();
  plant->id = next_id_++;
  plant->sampling.temperature = introduction.temperature;
  plant->sampling.top_k = static_cast<int32_t>(introduction.top_k);
  plant->sampling.top_p = introduction.top_p;
  plant->sampling.min_p = introduction.min_p;
  plant->sampling.seed = introduction.seed;
  plant->sampling.sample_index = introduction.sample_index;
  plant->samples = introduction.rule == kernels::VerificationRule::kRejectionSampling && !plant->sampling.is_greedy();
  return plants_.emplace(plant->id, std::move(plant)).first->first;
}

void Garden::Close(PlantId id) {
  Clear(*plants_.at(id));
  plants_.erase(id);
}

void Garden::Clear(Plant& plant) {
  for (const int32_t block : plant.blocks) pool_.Release(block);
  plant.blocks.clear();
  for (const int32_t slot : plant.tree.Fell()) free_slots_.push_back(slot);
  plant.tree = GrowingTree(plant.num_sent());
  plant.num_computed = 0;
}

void Garden::Refuse(Plant& plant) {
  Clear(plant);
  plant.is_refused = true;
}

// Blocks for so many positions. A sleeper takes from no other.
bool Garden::Extend(Plant& plant, int32_t num_positions) {
  while (static_cast<int32_t>(plant.blocks.size()) < NumBlocks(num_positions)) {
    const std::optional<int32_t> block = pool_.Allocate(model::Evict::kNo);
    if (block.has_value()) {
      plant.blocks.push_back(*block);
    } else if (plant.sleeps() || !ClearSleeper()) {
      return false;
    }
  }
  return true;
}

void Garden::PutIdleToSleep() {
  constexpr uint64_t kRounds = 8;  // in which a plant on average was asked as often
  for (const auto& [id, plant] : plants_) {
    const bool is_idle = num_wishes_ - plant->last_wish > kRounds * plants_.size();
    if (is_idle && !WantsContextRows(*plant)) plant->wish = {};
  }
}

// Of the sleepers that hold blocks, the one that was asked longest ago. False: there is none.
bool Garden::ClearSleeper() {
  Plant* oldest = nullptr;
  for (const auto& [id, plant] : plants_) {
    const bool may_clear = plant->sleeps() && !plant->blocks.empty();
    if (may_clear && (oldest == nullptr || plant->last_wish < oldest->last_wish)) oldest = plant.get();
  }
  if (oldest == nullptr) return false;
  Clear(*oldest);
  return true;
}

void Garden::Append(PlantId id, std::span<const int32_t> token_ids) {
  Plant& plant = *plants_.at(id);
  if (plant.is_refused || token_ids.empty()) return;
  const auto has_it = [this](int32_t token_id) { return token_id < parts_.transformer->config().vocab_size; };
  if (options_.learns_chances) Learn(plant, token_ids);
  plant.token_ids.insert(plant.token_ids.end(), token_ids.begin(), token_ids.end());
  for (const int32_t token_id : token_ids) plant.context_hash = ExtendContextHash(plant.context_hash, token_id);
  const bool fits = plant.size() <= parts_.transformer->options().max_positions;
  if (!fits || !std::all_of(token_ids.begin(), token_ids.end(), has_it)) return Refuse(plant);
  const GrowingTree::Advanced advanced = plant.tree.Advance(token_ids);
  free_slots_.insert(free_slots_.end(), advanced.freed_slots.begin(), advanced.freed_slots.end());
  MovePath(plant, advanced.path_slots);
  free_slots_.insert(free_slots_.end(), advanced.path_slots.begin(), advanced.path_slots.end());
}

// From slots to the blocks behind what is computed. Where no blocks are left the tree goes: it would hang in the air.
void Garden::MovePath(Plant& plant, std::span<const int32_t> slots) {
  if (slots.empty()) return;
  const int32_t num_computed = plant.num_computed + static_cast<int32_t>(slots.size());
  if (!Extend(plant, num_computed)) {
    for (const int32_t slot : plant.tree.Fell()) free_slots_.push_back(slot);
    plant.tree = GrowingTree(plant.num_sent());
    return;
  }
  std::vector<kernels::KvMove> moves;
  for (const int32_t slot : slots) {
    const int32_t position = plant.num_computed + static_cast<int32_t>(moves.size());
    moves.push_back({.from_slot = slot, .to_slot = model::SlotOf(plant.blocks, position)});
  }
  parts_.transformer->MoveKv(*parts_.kv, moves);
  plant.num_computed = num_computed;
}

void Garden::Want(PlantId id, const Wish& wish) {
  Plant& plant = *plants_.at(id);
  plant.wish = wish;
  if (plant.sleeps()) return;
  plant.last_wish = ++num_wishes_;
  PutIdleToSleep();
  plant.tree.Aim(plant.num_sent());
  if (!plant.is_refused && !Extend(plant, plant.size())) Refuse(plant);
}

void Garden::Learn(const Plant& plant, std::span<const int32_t> committed) {
  int32_t at = GrowingTree::kRoot;
  for (const int32_t token_id : committed) {
    const std::span<const GrowingTree::Node> children = plant.tree.Children(at);
    if (children.empty()) return;
    std::vector<float> scores;
    std::optional<size_t> hit;
    for (const GrowingTree::Node& child : children) {
      if (child.child.token_id == token_id) hit = scores.size();
      scores.push_back(child.child.score);
    }
    ChancesOf(plant).Observe(scores, hit);
    if (!hit.has_value()) return;
    at = plant.tree.node(at).first_child + static_cast<int32_t>(*hit);
  }
}

bool Garden::WantsContextRows(const Plant& plant) const {
  return !plant.sleeps() && !plant.is_refused && plant.num_computed < plant.size();
}

bool Garden::WantsTreeRows(const Plant& plant) const {
  const std::optional<float> best = plant.tree.BestPromise();
  return !plant.sleeps() && best.has_value() && *best >= LeastPromise() &&
         plant.tree.num_expanded() < options_.max_grown_nodes;
}

std::vector<Garden::PlantId> Garden::Grow() {
  Pass pass;
  AddContextRows(pass);
  AddTreeRows(pass);
  if (pass.batch.num_rows() > 0) Run(pass);
  return std::move(pass.touched);
}

void Garden::AddContextRows(Pass& pass) {
  std::vector<Plant*> waiting;
  for (const auto& [id, plant] : plants_) {
    if (WantsContextRows(*plant)) waiting.push_back(plant.get());
  }
  const auto num_missing = [](const Plant* plant) { return plant->size() - plant->num_computed; };
  std::stable_sort(waiting.begin(), waiting.end(),
                   [&](const Plant* a, const Plant* b) { return num_missing(a) < num_missing(b); });
  int32_t num_free = options_.max_context_rows;
  for (Plant* plant : waiting) {
    if (num_free == 0) break;
    const int32_t num_rows = std::min(num_missing(plant), num_free);
    num_free -= num_rows;
    const int32_t root_row = model::AppendSegment(
        {.block_table = plant->blocks,
         .first_position = plant->num_computed,
         .chain = std::span<const int32_t>(plant->token_ids).subspan(plant->num_computed, num_rows)},
        &pass.batch);
    plant->num_computed += num_rows;
    pass.touched.push_back(plant->id);
    counters_.num_context_rows += num_rows;
    if (plant->num_computed == plant->size())
      pass.Branch(*plant, GrowingTree::kRoot, root_row, Branching(*plant, GrowingTree::kRoot));
  }
}

void Garden::AddTreeRows(Pass& pass) {
  using Offer = std::pair<float, Plant*>;
  const auto is_worse = [](const Offer& a, const Offer& b) {
    return a.first != b.first ? a.first < b.first : a.second->id > b.second->id;
  };
  std::priority_queue<Offer, std::vector<Offer>, decltype(is_worse)> offers(is_worse);
  for (const auto& [id, plant] : plants_) {
    if (WantsTreeRows(*plant)) offers.emplace(*plant->tree.BestPromise(), plant.get());
  }
  const int32_t max_positions = parts_.transformer->options().max_positions;
  ChosenNodes chosen;
  for (int32_t num_chosen = 0; num_chosen < options_.max_tree_rows && !offers.empty();) {
    Plant& plant = *offers.top().second;
    offers.pop();
    const std::optional<int32_t> slot = TakeSlot(plant, chosen);
    if (!slot.has_value()) continue;
    const int32_t node_idx = plant.tree.TakeBest();
    if (plant.size() - 1 + plant.tree.node(node_idx).depth < max_positions) {
      plant.tree.SetSlot(node_idx, *slot);
      chosen[plant.id].push_back(node_idx);
      ++num_chosen;
    } else {
      free_slots_.push_back(*slot);
    }
    const auto num_pending = static_cast<int32_t>(chosen[plant.id].size());
    if (WantsTreeRows(plant) && plant.tree.num_expanded() + num_pending < options_.max_grown_nodes) {
      offers.emplace(*plant.tree.BestPromise(), &plant);
    }
  }
  for (const auto& [id, nodes] : chosen) {
    if (!nodes.empty()) AddSegment(*plants_.at(id), nodes, pass);
  }
}

void Garden::AddSegment(Plant& plant, std::span<const int32_t> nodes, Pass& pass) {
  std::vector<std::vector<int32_t>> slots;
  std::vector<model::GrownRow> rows;
  for (const int32_t node_idx : nodes) slots.push_back(plant.tree.PathSlots(node_idx));
  for (size_t i = 0; i < nodes.size(); ++i) {
    rows.push_back({.token_id = plant.tree.node(nodes[i]).child.token_id, .ancestor_slots = slots[i]});
  }
  const int32_t first_row =
      model::AppendGrownSegment({.block_table = plant.blocks, .chain_len = plant.size(), .rows = rows}, &pass.batch);
  for (size_t i = 0; i < nodes.size(); ++i) {
    pass.Branch(plant, nodes[i], first_row + static_cast<int32_t>(i), Branching(plant, nodes[i]));
  }
  pass.touched.push_back(plant.id);
  counters_.num_tree_rows += nodes.size();
}

// Sleepers' trees go first, and for any tree.
bool Garden::FellFor(const Plant& plant, const ChosenNodes& chosen) {
  const auto is_older = [](const Plant& a, const Plant& b) {
    return a.sleeps() != b.sleeps() ? a.sleeps() : a.last_wish < b.last_wish;
  };
  const auto num_awake = std::ranges::count_if(plants_, [](const auto& entry) { return !entry.second->sleeps(); });
  const bool has_less_than_its_share = plant.tree.num_expanded() * num_awake < num_tree_slots_;
  Plant* oldest = nullptr;
  for (const auto& [id, other] : plants_) {
    const bool has_claim = other->sleeps() || has_less_than_its_share;
    const bool may_fell =
        has_claim && other->tree.num_expanded() > 0 && !chosen.contains(id) && is_older(*other, plant);
    if (may_fell && (oldest == nullptr || is_older(*other, *oldest))) oldest = other.get();
  }
  if (oldest == nullptr) return false;
  for (const int32_t slot : oldest->tree.Fell()) free_slots_.push_back(slot);
  ++counters_.num_felled;
  return true;
}

std::optional<int32_t> Garden::TakeSlot(const Plant& plant, const ChosenNodes& chosen) {
  if (free_slots_.empty() && !FellFor(plant, chosen)) return std::nullopt;
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void Garden::Run(Pass& pass) {
  ++counters_.num_passes;
  const kernels::ConstTensorView logits = parts_.transformer->Forward(pass.batch, *parts_.kv);
  std::vector<kernels::RowChildren> children(pass.rows.size());
  if (!pass.rows.empty()) {
    parts_.transformer->backend().BranchRows(
        {.logits = logits, .num_tokens = parts_.num_tokens, .rows = pass.rows, .children = children});
  }
  parts_.transformer->Synchronize();  // without rows, too: passes are measured, and none may pile up on another
  for (size_t i = 0; i < children.size(); ++i) {
    Expand(*pass.branching[i].plant, pass.branching[i].node_idx, children[i].children);
  }
}

void Garden::Expand(Plant& plant, int32_t node_idx, std::span<const kernels::ScoredToken> ranked) {
  SampledNode sampled;
  if (plant.samples) {
    sampled = SampleChildren({.law = ranked,
                              .num_children = options_.num_sampled_children,
                              .seed = plant.sampling.seed,
                              .sample_index = plant.sampling.sample_index,
                              .context_hash = ContextHash(plant, node_idx),
                              .salt = options_.sampling_salt});
    ranked = sampled.children;
  }
  std::vector<float> scores;
  for (const kernels::ScoredToken& token : ranked) scores.push_back(token.score);
  const std::vector<float> chances = ChancesOf(plant).Chances(scores);
  std::vector<GrowingTree::Child> children;
  for (size_t i = 0; i < ranked.size(); ++i) {
    children.push_back({.token_id = ranked[i].token_id, .score = scores[i], .chance = chances[i]});
  }
  plant.tree.Expand(node_idx, children, std::move(sampled.draft));
}

ChanceModel& Garden::ChancesOf(const Plant& plant) {
  const Regime regime = plant.samples                ? Regime::kSampled
                        : plant.sampling.is_greedy() ? Regime::kGreedy
                                                     : Regime::kKeyedDraw;
  return chances_[static_cast<size_t>(regime)];
}

kernels::RowToBranch Garden::Branching(const Plant& plant, int32_t node_idx) const {
  // Their chances sum to at most one, so more children than this cannot all be worth expanding.
  const float num_worth = plant.tree.node(node_idx).path_chance / std::max(LeastPromise(), 1e-6f);
  const auto max_children = static_cast<float>(std::max(options_.max_children, options_.num_children));
  const auto num_children = std::max(options_.num_children, static_cast<int32_t>(std::min(num_worth, max_children)));
  return {.sampling = plant.sampling,
          .t = static_cast<uint32_t>(plant.size() + plant.tree.node(node_idx).depth),
          .num_children = plant.samples ? options_.num_law_tokens : num_children,
          .ranking = plant.samples ? kernels::BranchRanking::kDraftProb : kernels::BranchRanking::kKeyedDraw};
}

void Garden::CheckIntegrity() const {
  pool_.CheckIntegrity();
  size_t num_slots = free_slots_.size();
  int32_t num_blocks = pool_.num_free();
  for (const auto& [id, plant] : plants_) {
    plant->tree.CheckIntegrity();
    num_blocks += static_cast<int32_t>(plant->blocks.size());
    for (int32_t i = 0; i < plant->tree.num_nodes(); ++i) num_slots += plant->tree.node(i).slot.has_value() ? 1 : 0;
    const auto num_own_blocks = static_cast<int32_t>(plant->blocks.size());
    FT_CHECK(num_own_blocks >= NumBlocks(plant->num_computed));
    FT_CHECK(plant->is_refused || plant->sleeps() || num_own_blocks == NumBlocks(plant->size()));
    FT_CHECK(plant->is_refused || plant->size() == 0 ||
             plant->tree.is_root_expanded() == (plant->num_computed == plant->size()));
  }
  FT_CHECK(static_cast<int32_t>(num_slots) == num_tree_slots_ && num_blocks == pool_.num_blocks());
}

}  // namespace foretoken::proposer
