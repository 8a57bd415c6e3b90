// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/scheduler.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

using kernels::kKvBlockSize;
using model::Evict;

int32_t NumBlocks(int32_t num_positions) { return (num_positions + kKvBlockSize - 1) / kKvBlockSize; }

// Goes before: by priority, then by arrival. Ids count up with arrival.
bool IsBefore(const Sequence& a, const Sequence& b) {
  if (a.request().priority != b.request().priority) return a.request().priority > b.request().priority;
  return a.id < b.id;
}

}  // namespace

void Scheduler::Enqueue(std::unique_ptr<Sequence> sequence) {
  const auto place =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& other) { return IsBefore(*sequence, *other); });
  waiting_.insert(place, std::move(sequence));
}

bool Scheduler::MustWaitForSibling(const Sequence& sequence) const {
  // A later sample of a prompt waits until the first has computed it, and then shares its blocks.
  if (!options_.enable_prefix_cache) return false;
  return std::any_of(running_.begin(), running_.end(), [&](const auto& other) {
    return other->active == sequence.active && other->num_computed + 1 < sequence.size();
  });
}

std::vector<Sequence*> Scheduler::Admit() {
  std::vector<Sequence*> admitted;
  for (size_t i = 0; i < waiting_.size() && static_cast<int32_t>(running_.size()) < options_.max_running;) {
    Sequence& sequence = *waiting_[i];
    if (MustWaitForSibling(sequence)) {
      ++i;
      continue;
    }
    if (!Begin(sequence)) break;  // nobody overtakes: a long prompt would wait for ever
    admitted.push_back(&sequence);
    running_.push_back(std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
  }
  std::sort(running_.begin(), running_.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return admitted;
}

bool Scheduler::Begin(Sequence& sequence) {
  FT_CHECK(sequence.blocks.empty() && sequence.num_computed == 0);
  // The last token is computed in any case: it draws the next one. Prompt log-probabilities need every row.
  const bool may_share = options_.enable_prefix_cache &&
                         !(sequence.request().output.num_prompt_logprobs.has_value() && !sequence.prompt_reported);
  if (may_share) {
    model::BlockPool::Prefix prefix = pool_.Find(
        sequence.request().tenant, std::span(sequence.token_ids).first(static_cast<size_t>(sequence.size()) - 1));
    sequence.blocks = std::move(prefix.blocks);
    sequence.prefix = prefix.last;
    sequence.num_registered_blocks = static_cast<int32_t>(sequence.blocks.size());
    sequence.num_computed = sequence.num_registered_blocks * kKvBlockSize;
  }
  if (!Extend(sequence, sequence.size(), Evict::kYes)) {
    ReleaseBlocks(sequence);
    return false;
  }
  return true;
}

bool Scheduler::Extend(Sequence& sequence, int32_t num_positions, Evict evict) {
  while (static_cast<int32_t>(sequence.blocks.size()) < NumBlocks(num_positions)) {
    const std::optional<int32_t> block = pool_.Allocate(evict);
    if (!block.has_value()) return false;
    sequence.blocks.push_back(*block);
  }
  return true;
}

void Scheduler::ReserveRoots() {
  for (size_t i = 0; i < running_.size(); ++i) {
    while (!Extend(*running_[i], running_[i]->size(), Evict::kYes)) {
      const size_t youngest = running_.size() - 1;
      Preempt(youngest);
      if (youngest == i) return;
    }
  }
}

void Scheduler::Preempt(size_t running_idx) {
  std::unique_ptr<Sequence> sequence = std::move(running_[running_idx]);
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(running_idx));
  ReleaseBlocks(*sequence);
  ++num_preemptions_;
  Enqueue(std::move(sequence));
}

void Scheduler::ReleaseBlocks(Sequence& sequence) {
  // From the last to the first, so that a prefix is evicted after its continuations.
  while (!sequence.blocks.empty()) {
    pool_.Release(sequence.blocks.back());
    sequence.blocks.pop_back();
  }
  sequence.num_computed = 0;
  sequence.num_registered_blocks = 0;
  sequence.prefix = model::kEmptyPrefix;
}

Scheduler::TreeSlots Scheduler::ReserveTree(Sequence& sequence, int32_t num_nodes, int32_t depth) {
  TreeSlots tree_slots;
  if (num_nodes == 0 || !Extend(sequence, sequence.size() + depth, Evict::kNo)) return tree_slots;
  tree_slots.blocks.reserve(NumBlocks(num_nodes));
  tree_slots.slots.reserve(num_nodes);
  for (int32_t i = 0; i < NumBlocks(num_nodes); ++i) {
    const std::optional<int32_t> block = pool_.Allocate(Evict::kNo);
    if (!block.has_value()) break;
    tree_slots.blocks.push_back(*block);
    for (int32_t offset = 0; offset < kKvBlockSize; ++offset) {
      if (static_cast<int32_t>(tree_slots.slots.size()) < num_nodes) {
        tree_slots.slots.push_back(*block * kKvBlockSize + offset);
      }
    }
  }
  return tree_slots;
}

void Scheduler::GiveBack(TreeSlots& tree_slots) {
  for (const int32_t block : tree_slots.blocks) pool_.Release(block);
  tree_slots = {};
}

void Scheduler::Settle(Sequence& sequence) {
  while (options_.enable_prefix_cache && (sequence.num_registered_blocks + 1) * kKvBlockSize <= sequence.num_computed) {
    const int32_t block_idx = sequence.num_registered_blocks++;
    const auto tokens = std::span(sequence.token_ids).subspan(block_idx * kKvBlockSize).first<kKvBlockSize>();
    sequence.prefix = pool_.Insert(sequence.request().tenant, sequence.prefix, tokens, sequence.blocks[block_idx]);
  }
  while (static_cast<int32_t>(sequence.blocks.size()) > NumBlocks(sequence.size())) {
    pool_.Release(sequence.blocks.back());
    sequence.blocks.pop_back();
  }
}

void Scheduler::RemoveFinished(const std::function<void(Sequence&)>& on_removed) {
  const auto remove = [&](const std::unique_ptr<Sequence>& sequence) {
    if (!sequence->is_finished) return false;
    ReleaseBlocks(*sequence);
    on_removed(*sequence);
    return true;
  };
  std::erase_if(running_, remove);
  std::erase_if(waiting_, remove);
}

void Scheduler::KeepFree() {
  const auto num_running = static_cast<int32_t>(running_.size());
  const int32_t wanted = num_running * (NumBlocks(options_.max_tree_nodes) + 1);
  pool_.EvictUntilFree(std::min(wanted, pool_.num_blocks() / 4));
}

}  // namespace foretoken::verifier
