// SPDX-License-Identifier: Apache-2.0
// Chooses the running sequences and gives them K/V blocks. Samples begin in the order of the WaitingLine. The scheduler
// makes a sequence when its sample begins, so a waiting sample costs nothing. When blocks run out, the scheduler
// preempts a sequence of the tenant that holds the most blocks for its weight: the one with the lowest effective
// priority, and among equals the youngest. The sequence's blocks return to the pool (full blocks stay cached), its
// tokens stay, and it is computed again later to the same bits (E1).
//
// A sequence that was preempted before is spared while it is the oldest that runs, so each one ends at last. Otherwise
// a tenant's only request could lose its blocks to the tokens of other tenants each time that it comes back.
//
// The scheduler evicts no block for a sample that would not fit after the eviction. Blocks for trees come only from the
// free list: speculation never evicts and never preempts. KeepFree evicts cached blocks between steps, so that free
// blocks exist.
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

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/model/block_pool.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/engine/waiting_line.h"
#include "verifier_service/request/active_request.h"

namespace foretoken::verifier {

struct SchedulerOptions {
  int32_t max_running = 64;  // sequences
  bool enable_prefix_cache = true;
  absl::Duration priority_aging = absl::Seconds(10);
  TenantShares tenants;
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, int32_t num_blocks)
      : options_(options), pool_(num_blocks), line_(options.priority_aging, options.tenants) {}

  // Adds all samples of a request to the line.
  void Enqueue(std::shared_ptr<ActiveRequest> active, absl::Time now) { line_.Join(std::move(active), now); }
  // Removes the request's samples that have not begun.
  void DropUnbegun(ActiveRequest& active) { line_.Leave(active); }
  // Returns the tenant's last waiting request of which no sample has begun, or null.
  std::shared_ptr<ActiveRequest> LastUnbegun(absl::string_view tenant) const { return line_.LastUnbegun(tenant); }
  // Starts waiting samples as long as the next one fits. `make` makes the next sample of a request. A sample with a
  // grammar begins only while `forms_may_begin` returns true; samples without a grammar may begin before it. Returns
  // the sequences that begin to run, again or for the first time.
  using MakeNext = std::function<std::unique_ptr<Sequence>(const std::shared_ptr<ActiveRequest>&)>;
  std::vector<Sequence*> Admit(
      absl::Time now, const MakeNext& make, const std::function<bool()>& forms_may_begin = [] { return true; });
  // The running sequence's tenant pays for this work, besides the sequence's tokens.
  void Charge(const Sequence& running, double num_tokens) { line_.Charge(running, num_tokens); }
  // Reserves room for the root of every running sequence. Preempts sequences if there is no room.
  void ReserveRoots(absl::Time now);
  // Reserves up to num_nodes slots for tree nodes, in blocks that GiveBack frees, and room in the block table for a
  // path of up to `depth` of these nodes. Returns fewer slots or none if there are not enough free blocks.
  struct TreeSlots {
    std::vector<int32_t> blocks;
    std::vector<int32_t> slots;
  };
  TreeSlots ReserveTree(Sequence& sequence, int32_t num_nodes, int32_t depth);
  void GiveBack(TreeSlots& tree_slots);
  // Call after a commit. Adds full blocks to the prefix cache and frees spare blocks.
  void CacheAndTrim(Sequence& sequence);
  // Removes finished sequences, running or preempted.
  void RemoveFinished(const std::function<void(Sequence&)>& on_removed);
  void KeepFree();

  std::span<const std::unique_ptr<Sequence>> running() const { return running_; }  // oldest first
  bool has_waiting() const { return !line_.empty(); }
  // Whether a sample of another request than this one waits for room. One that only waits until its own request's first
  // sample has computed their prompt does not.
  bool OthersNeedRoom(const ActiveRequest* than = nullptr) const;
  // The entries that have left the line since the start.
  uint64_t num_left() const { return line_.num_left(); }
  std::optional<double> UsualTokens(const GenerationRequest& request) const { return line_.UsualTokens(request); }
  double WeightOf(const Sequence& sequence) const { return line_.WeightOf(sequence.request().tenant); }
  const model::BlockPool& pool() const { return pool_; }
  uint64_t num_preemptions() const { return num_preemptions_; }
  // The number of preempted sequences, which wait to be computed again.
  int32_t num_preempted() const { return static_cast<int32_t>(preempted_.size()); }

 private:
  // K/V blocks for a context: blocks from the prefix cache first, then new blocks.
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
  absl::flat_hash_map<absl::string_view, double> BlocksPerWeight() const;
  void Preempt(size_t running_idx, absl::Time now);

  SchedulerOptions options_;
  model::BlockPool pool_;
  WaitingLine line_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::vector<std::unique_ptr<Sequence>> preempted_;  // they wait in `line_`
  uint64_t num_preemptions_ = 0;
};

}  // namespace foretoken::verifier
