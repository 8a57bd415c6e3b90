// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

using kernels::kKvBlockSize;
using model::Evict;

int32_t NumBlocks(int32_t num_positions) { return (num_positions + kKvBlockSize - 1) / kKvBlockSize; }

std::span<const int32_t> ContextOf(const WaitingLine::Entry& entry) {
  return entry.preempted != nullptr ? entry.preempted->token_ids : entry.active->request->prompt;
}

}  // namespace

bool Scheduler::MustWaitForSibling(const WaitingLine::Entry& entry) const {
  // A later sample waits until the first sample has computed the prompt, and then shares its blocks. Where the prompt
  // is reported, it waits for the report, which comes before all else of all samples.
  const OutputRequest& output = entry.active->request->output;
  const bool is_reported = output.echo || output.num_prompt_logprobs.has_value();
  if (!options_.enable_prefix_cache && !is_reported) return false;
  const auto num_prompt = static_cast<int32_t>(entry.active->request->prompt.size());
  return std::ranges::any_of(entry.active->sequences, [&](const Sequence* other) {
    if (is_reported && !other->prompt_reported) return other != entry.preempted;
    const bool is_running = !other->blocks.empty();
    return is_running && other->num_computed + 1 < num_prompt;
  });
}

bool Scheduler::OthersNeedRoom(const ActiveRequest* than) const {
  return line_.Any(
      [&](const WaitingLine::Entry& entry) { return entry.active.get() != than && !MustWaitForSibling(entry); });
}

std::vector<Sequence*> Scheduler::Admit(absl::Time now, const MakeNext& make,
                                        const std::function<bool()>& forms_may_begin) {
  std::vector<Sequence*> admitted;
  if (line_.empty()) return admitted;
  for (const auto& sequence : running_) line_.GoOn(*sequence);
  while (static_cast<int32_t>(running_.size()) < options_.max_running) {
    const auto may_begin = [this, forms_may = forms_may_begin()](const WaitingLine::Entry& entry) {
      return (forms_may || entry.active->request->grammar == nullptr) && !MustWaitForSibling(entry);
    };
    const WaitingLine::Entries::value_type* const next = line_.Next(may_begin);
    if (next == nullptr) break;
    const WaitingLine::Entry& entry = next->second;
    std::optional<Context> context = ReserveContext(entry);
    if (!context.has_value()) break;  // no overtaking, or a long prompt would wait forever
    std::unique_ptr<Sequence> sequence =
        entry.preempted != nullptr ? TakePreempted(entry.preempted) : make(entry.active);
    sequence->blocks = std::move(context->blocks);
    sequence->prefix = context->prefix;
    sequence->num_registered_blocks = context->num_cached_blocks;
    sequence->num_computed = context->num_cached_blocks * kKvBlockSize;
    line_.Begin(*next, *sequence, now);
    admitted.push_back(sequence.get());
    running_.push_back(std::move(sequence));
  }
  std::sort(running_.begin(), running_.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return admitted;
}

std::optional<Scheduler::Context> Scheduler::ReserveContext(const WaitingLine::Entry& entry) {
  const GenerationRequest& request = *entry.active->request;
  const std::span<const int32_t> token_ids = ContextOf(entry);
  const bool is_prompt_reported =
      entry.preempted != nullptr ? entry.preempted->prompt_reported : entry.active->num_begun > 0;
  // The last token is always computed, because its row draws the next token. A log-probability of the prompt needs its
  // row. A preempted sequence keeps the log-probabilities that it has, so their rows may come from the cache.
  size_t num_shareable = token_ids.size() - 1;
  if (request.output.num_prompt_logprobs.has_value() && !is_prompt_reported) {
    num_shareable = std::min(num_shareable, entry.preempted != nullptr ? entry.preempted->prompt_logprobs.size() : 0);
  }
  Context context;
  if (options_.enable_prefix_cache) {
    model::BlockPool::Prefix prefix = pool_.Find(request.tenant, token_ids.first(num_shareable));
    context = {.blocks = std::move(prefix.blocks), .prefix = prefix.last};
    context.num_cached_blocks = static_cast<int32_t>(context.blocks.size());
  }
  if (Extend(context.blocks, static_cast<int32_t>(token_ids.size()), Evict::kYes)) return context;
  Release(context.blocks);
  return std::nullopt;
}

// Adds all missing blocks or none. Evicts nothing if the blocks would not suffice.
bool Scheduler::Extend(std::vector<int32_t>& blocks, int32_t num_positions, Evict evict) {
  const auto num_missing = NumBlocks(num_positions) - static_cast<int32_t>(blocks.size());
  if (num_missing > pool_.num_free() + (evict == Evict::kYes ? pool_.num_cached() : 0)) return false;
  for (int32_t i = 0; i < num_missing; ++i) blocks.push_back(*pool_.Allocate(evict));
  return true;
}

void Scheduler::ReserveRoots(absl::Time now) {
  for (size_t i = 0; i < running_.size();) {
    if (Extend(running_[i]->blocks, running_[i]->size(), Evict::kYes)) {
      ++i;
      continue;
    }
    const size_t victim = Victim();
    Preempt(victim, now);
    if (victim < i) --i;
  }
}

// The blocks that each tenant holds, divided by its weight. A prefix that many of its sequences share counts once.
absl::flat_hash_map<absl::string_view, double> Scheduler::BlocksPerWeight() const {
  absl::flat_hash_map<absl::string_view, double> blocks_per_weight;
  std::vector<bool> is_counted(static_cast<size_t>(pool_.num_blocks()));  // tenants share no block
  for (const auto& sequence : running_) {
    int32_t num_new = 0;
    for (const int32_t block : sequence->blocks) {
      num_new += is_counted[block] ? 0 : 1;
      is_counted[block] = true;
    }
    blocks_per_weight[sequence->request().tenant] += num_new / WeightOf(*sequence);
  }
  return blocks_per_weight;
}

// A tenant without many blocks keeps them, whatever the priorities of others, unless the sequence of the tenant with
// the most is the one that is spared.
size_t Scheduler::Victim() const {
  const absl::flat_hash_map<absl::string_view, double> blocks_per_weight = BlocksPerWeight();
  const auto standing = [&](size_t i) {
    const Sequence& sequence = *running_[i];
    return std::pair(-blocks_per_weight.at(sequence.request().tenant), line_.EffectivePriority(sequence));
  };
  size_t victim = running_.size() > 1 && running_[0]->was_preempted ? 1 : 0;
  for (size_t i = victim + 1; i < running_.size(); ++i) {
    if (standing(i) <= standing(victim)) victim = i;
  }
  return victim;
}

void Scheduler::Preempt(size_t running_idx, absl::Time now) {
  std::unique_ptr<Sequence> sequence = std::move(running_[running_idx]);
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(running_idx));
  sequence->was_preempted = true;
  line_.Return(*sequence, now);
  ReleaseBlocks(*sequence);
  ++num_preemptions_;
  preempted_.push_back(std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::TakePreempted(const Sequence* sequence) {
  const auto place =
      std::ranges::find_if(preempted_, [sequence](const auto& preempted) { return preempted.get() == sequence; });
  FT_CHECK(place != preempted_.end());
  std::unique_ptr<Sequence> taken = std::move(*place);
  preempted_.erase(place);
  return taken;
}

void Scheduler::Release(std::vector<int32_t>& blocks) {
  // From the last to the first, so that a prefix is evicted after its continuations.
  while (!blocks.empty()) {
    pool_.Release(blocks.back());
    blocks.pop_back();
  }
}

void Scheduler::ReleaseBlocks(Sequence& sequence) {
  Release(sequence.blocks);
  sequence.num_computed = 0;
  sequence.num_registered_blocks = 0;
  sequence.prefix = model::kEmptyPrefix;
}

Scheduler::TreeSlots Scheduler::ReserveTree(Sequence& sequence, int32_t num_nodes, int32_t depth) {
  TreeSlots tree_slots;
  const auto num_positions = [&](int32_t num) { return sequence.size() + std::min(depth, num); };
  const auto num_missing = [&](int32_t num) {
    const int32_t for_path = NumBlocks(num_positions(num)) - static_cast<int32_t>(sequence.blocks.size());
    return std::max(0, for_path) + NumBlocks(num);
  };
  while (num_nodes > 0 && num_missing(num_nodes) > pool_.num_free()) --num_nodes;
  if (num_nodes == 0) return tree_slots;
  FT_CHECK(Extend(sequence.blocks, num_positions(num_nodes), Evict::kNo));
  tree_slots.blocks.reserve(NumBlocks(num_nodes));
  tree_slots.slots.reserve(num_nodes);
  for (int32_t node = 0; node < num_nodes; ++node) {
    if (node % kKvBlockSize == 0) tree_slots.blocks.push_back(*pool_.Allocate(Evict::kNo));
    tree_slots.slots.push_back(tree_slots.blocks.back() * kKvBlockSize + node % kKvBlockSize);
  }
  return tree_slots;
}

void Scheduler::GiveBack(TreeSlots& tree_slots) {
  for (const int32_t block : tree_slots.blocks) pool_.Release(block);
  tree_slots = {};
}

void Scheduler::CacheAndTrim(Sequence& sequence) {
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
  const auto remove = [&](Sequence& sequence) {
    ReleaseBlocks(sequence);
    on_removed(sequence);
  };
  std::erase_if(running_, [&](const std::unique_ptr<Sequence>& sequence) {
    if (!sequence->is_finished) return false;
    line_.End(*sequence);
    remove(*sequence);
    return true;
  });
  std::erase_if(preempted_, [&](const std::unique_ptr<Sequence>& sequence) {
    if (!sequence->is_finished) return false;
    line_.Leave(*sequence);
    remove(*sequence);
    return true;
  });
}

void Scheduler::KeepFree() {
  int32_t wanted = 0;
  for (const auto& sequence : running_) {
    const int32_t max_nodes = sequence->active->max_tree_nodes;
    if (max_nodes > 0) wanted += 1 + 2 * NumBlocks(max_nodes);  // for the root, the nodes, and a path of all of them
  }
  pool_.EvictUntilFree(std::min(wanted, pool_.num_blocks() / 4));
}

}  // namespace foretoken::verifier
