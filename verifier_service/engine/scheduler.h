// SPDX-License-Identifier: Apache-2.0
// Which sequences run, and which K/V blocks they hold. Samples begin in the order of the WaitingLine, and a sequence is
// made when its sample begins, so that a sample that waits costs nothing. When blocks run out, the sequence of the
// lowest effective priority is preempted, of equal ones the youngest: its blocks go back (cached, where they are full),
// its tokens stay, and it is computed again later, to the same bits (E1).
//
// No block is evicted for a sample that does not fit even then. Blocks for trees come from the free list alone:
// speculation never evicts and never preempts. So that there are free blocks at all, KeepFree evicts cached ones ahead
// of need, between steps.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/model/block_pool.h"
#include "verifier_service/engine/active_request.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/engine/waiting_line.h"

namespace foretoken::verifier {

struct SchedulerOptions {
  int32_t max_running = 64;  // sequences
  bool enable_prefix_cache = true;
  int32_t max_tree_nodes = 32;  // per sequence: what KeepFree provides for
  absl::Duration priority_aging = absl::Seconds(10);
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, int32_t num_blocks)
      : options_(options), pool_(num_blocks), line_(options.priority_aging) {}

  // All samples of a request, into the line.
  void Enqueue(std::shared_ptr<ActiveRequest> active, absl::Time now) { line_.Join(std::move(active), now); }
  // Its samples that have not begun never will.
  void DropUnbegun(ActiveRequest& active) { line_.Leave(active); }
  // Moves what fits from the line to the running ones. `make` makes the next sample of a request. Returns the sequences
  // that begin to run, again or for the first time.
  using MakeNext = std::function<std::unique_ptr<Sequence>(const std::shared_ptr<ActiveRequest>&)>;
  std::vector<Sequence*> Admit(absl::Time now, const MakeNext& make);
  // Makes room for the root of every running sequence, by preemption where there is none.
  void ReserveRoots(absl::Time now);
  // Up to num_nodes slots for tree nodes, in blocks that GiveBack takes, and room in the block table for a path of up
  // to `depth` tokens. Fewer slots, or none, when the free blocks do not suffice.
  struct TreeSlots {
    std::vector<int32_t> blocks;
    std::vector<int32_t> slots;
  };
  TreeSlots ReserveTree(Sequence& sequence, int32_t num_nodes, int32_t depth);
  void GiveBack(TreeSlots& tree_slots);
  // After a commit: the prefix cache learns of the full blocks, spare blocks go back.
  void Settle(Sequence& sequence);
  // Ends sequences that are finished, wherever they are.
  void RemoveFinished(const std::function<void(Sequence&)>& on_removed);
  void KeepFree();

  std::span<const std::unique_ptr<Sequence>> running() const { return running_; }  // oldest first
  bool has_waiting() const { return !line_.entries().empty(); }
  const model::BlockPool& pool() const { return pool_; }
  uint64_t num_preemptions() const { return num_preemptions_; }
  // Sequences that wait to be computed again.
  int32_t num_preempted() const { return static_cast<int32_t>(preempted_.size()); }

 private:
  // K/V blocks for a context: what the prefix cache has of it, and then new ones.
  struct Context {
    std::vector<int32_t> blocks;
    int32_t num_cached_blocks = 0;
    model::PrefixId prefix = model::kEmptyPrefix;
  };

  bool MustWaitForSibling(const WaitingLine::Entry& entry) const;
  std::optional<Context> ReserveContext(const WaitingLine::Entry& entry);
  bool Extend(std::vector<int32_t>& blocks, int32_t num_positions, model::Evict evict);
  std::unique_ptr<Sequence> TakePreempted(const Sequence* sequence);
  void Release(std::vector<int32_t>& blocks);
  void ReleaseBlocks(Sequence& sequence);
  size_t Victim() const;
  void Preempt(size_t running_idx, absl::Time now);

  SchedulerOptions options_;
  model::BlockPool pool_;
  WaitingLine line_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::vector<std::unique_ptr<Sequence>> preempted_;  // in the line
  uint64_t num_preemptions_ = 0;
};

}  // namespace foretoken::verifier
