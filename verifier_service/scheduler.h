// SPDX-License-Identifier: Apache-2.0
// Which sequences run, and which K/V blocks they hold. Waiting sequences go in by (priority, arrival); when blocks run
// out the youngest running one is preempted: its blocks go back (cached, where they are full), its tokens stay, and it
// is computed again later, to the same bits (E1).
//
// Blocks for trees come from the free list alone: speculation never evicts and never preempts. So that there are free
// blocks at all, KeepFree evicts cached ones ahead of need, between steps.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/model/block_pool.h"
#include "verifier_service/sequence.h"

namespace foretoken::verifier {

struct SchedulerOptions {
  int32_t max_running = 64;  // sequences
  bool enable_prefix_cache = true;
  int32_t max_tree_nodes = 32;  // per sequence: what KeepFree provides for
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, int32_t num_blocks) : options_(options), pool_(num_blocks) {}

  // Into the waiting ones, at its place.
  void Enqueue(std::unique_ptr<Sequence> sequence);
  // Moves what fits from waiting to running. Returns the sequences that begin to run.
  std::vector<Sequence*> Admit();
  // Makes room for the root of every decoding sequence, preempting the youngest where there is none.
  void ReserveRoots();
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
  std::span<const std::unique_ptr<Sequence>> waiting() const { return waiting_; }  // the next first
  const model::BlockPool& pool() const { return pool_; }
  uint64_t num_preemptions() const { return num_preemptions_; }

 private:
  bool MustWaitForSibling(const Sequence& sequence) const;
  bool Begin(Sequence& sequence);
  bool Extend(Sequence& sequence, int32_t num_positions, model::Evict evict);
  void ReleaseBlocks(Sequence& sequence);
  void Preempt(size_t running_idx);

  SchedulerOptions options_;
  model::BlockPool pool_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::vector<std::unique_ptr<Sequence>> waiting_;
  uint64_t num_preemptions_ = 0;
};

}  // namespace foretoken::verifier
