// SPDX-License-Identifier: Apache-2.0
// All growing trees of a draft model, and the model that makes them grow: a pass at a time, over all sessions at once.
//
//   DraftForest forest({.transformer = ..., .kv = ..., .num_tokens = ...}, options);
//   DraftForest::SessionId id = forest.Open(introduction);
//   forest.Append(id, prompt);
//   forest.Want(id, {.node_budget = 32});
//   while (!forest.Grow().empty()) continue;
//   TokenTree tree = forest.Find(id).tree.Snapshot(...);
//
// A pass computes context rows that wait, the shortest waits first and prompts in chunks, and with them the frontier
// nodes of the largest path chances over all sessions. Children are what the target would most likely draw, given the
// draft's row (kernels::BranchRowsArgs); or, for a session that is verified by rejection sampling, samples from the
// row's truncated distribution (sampled_node.h). At temperature 0 they are guesses under either rule.
//
// K/V. A context stands in blocks, as at the verifier; its tree in single slots of a part of the cache that contexts
// cannot take. Appending moves the committed path's K/V from its slots into the context's blocks, so a kept node is
// never computed twice. A tree that finds no slot and has less than its share fells the tree of the session that was
// asked longest ago, if before its own. A context that finds no block makes its session refused.
//
// A session of which nothing is wanted sleeps: it takes part in no pass and takes no room. What it has it keeps until
// others need it, the longest sleeper giving first; when it wakes it catches up. A session that is not asked while
// others are, again and again, falls asleep.
//
// A pass is all that takes time. Everything here is a function of the calls made, and, for equal chance models, the
// best nodes of a session that has stopped growing do not depend on the other sessions.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/btree_map.h"
#include "common/model/block_pool.h"
#include "common/model/forward_batch.h"
#include "common/model/transformer.h"
#include "kernels/ops.h"
#include "proposer_service/draft/chance_model.h"
#include "proposer_service/draft/growing_tree.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

struct DraftForestOptions {
  int32_t num_children = 32;             // of an expanded node
  int32_t max_children = 128;            // of one whose children may all be worth expanding
  int32_t num_sampled_children = 3;      // the same for rejection sampling, where all of them must be tested
  int32_t num_distribution_tokens = 32;  // that these are sampled from
  uint64_t sampling_salt = 0;            // of this proposer's noise: no other of the same verifier may have it
  int32_t max_tree_rows = 32;            // nodes expanded in a pass, over all sessions
  int32_t max_context_rows = 128;        // context tokens computed in a pass, over all sessions
  int32_t max_grown_nodes = 512;    // nodes that a session's tree may have expanded, the root apart; each holds a slot
  float min_path_chance = 0.0005f;  // nodes that promise less are not expanded
  // The same where others want the cores, too: what is grown then is taken from them.
  float shared_min_path_chance = 0.01f;
  float tree_kv_fraction = 0.25f;  // of the K/V cache, for trees
  bool learns_chances = true;      // from what is committed
};

class DraftForest {
 public:
  struct Parts {
    model::Transformer* transformer = nullptr;  // its limits hold the rows of a pass, all with logits
    const model::KvCache* kv = nullptr;
    int32_t num_tokens = 0;  // V: ids below it may be guessed
  };

  using SessionId = uint64_t;

  struct Session {
    SessionId id = 0;
    kernels::SamplingParams sampling;
    bool samples = false;            // children are sampled, not guessed
    std::vector<int32_t> token_ids;  // the context
    uint64_t context_hash = 0;
    int32_t num_computed = 0;  // positions whose K/V is in the blocks; all of them once the root is expanded
    std::vector<int32_t> blocks;
    GrowingTree tree;
    TreeRequest tree_request;
    uint64_t last_request = 0;  // when something was wanted of it last; counts up
    bool is_refused = false;    // no room for its context: it holds nothing any more

    int32_t size() const { return static_cast<int32_t>(token_ids.size()); }
    bool sleeps() const { return tree_request.node_budget == 0; }
    // Sampled children are tested group by group, so there the best nodes are not what is sent.
    int32_t num_sent() const { return samples ? 0 : tree_request.node_budget; }
  };

  struct Counters {
    uint64_t num_passes = 0;
    uint64_t num_context_rows = 0;
    uint64_t num_tree_rows = 0;
    uint64_t num_evicted_trees = 0;  // trees
  };

  DraftForest(const Parts& parts, const DraftForestOptions& options);

  SessionId Open(const SessionIntroduction& introduction);
  // Committed tokens; ids that the model does not have make the session refused.
  void Append(SessionId id, std::span<const int32_t> token_ids);
  void Want(SessionId id, const TreeRequest& tree_request);
  void Close(SessionId id);
  const Session& Find(SessionId id) const { return *sessions_.at(id); }

  // One pass. Returns the sessions that it touched; none: nothing can grow until there is news.
  std::vector<SessionId> Grow();

  // From now on others want the cores that passes run on, or do not.
  void set_shares_cores(bool shares_cores) { shares_cores_ = shares_cores; }

  // Whether the session's tree is not as large as it may become.
  bool WantsTreeRows(const Session& session) const;

  const DraftForestOptions& options() const { return options_; }
  // In order of their opening.
  const absl::btree_map<SessionId, std::unique_ptr<Session>>& sessions() const { return sessions_; }
  int32_t num_sessions() const { return static_cast<int32_t>(sessions_.size()); }
  const Counters& counters() const { return counters_; }
  // How children are chosen; each way has chances of its own.
  enum class Regime { kGreedy, kKeyedDraw, kSampled };
  const ChanceModel& chances(Regime regime) const { return chances_[static_cast<size_t>(regime)]; }
  // Dies unless blocks, slots and trees agree.
  void CheckIntegrity() const;

 private:
  struct Pass;
  using ChosenNodes = absl::btree_map<SessionId, std::vector<int32_t>>;  // to expand in a pass

  bool Extend(Session& session, int32_t num_positions);
  bool ClearSleeper();
  void PutIdleToSleep();
  void MovePath(Session& session, std::span<const int32_t> slots);
  void Refuse(Session& session);
  void Clear(Session& session);
  void Learn(const Session& session, std::span<const int32_t> committed);
  bool WantsContextRows(const Session& session) const;
  float LeastPromise() const {
    return shares_cores_ ? std::max(options_.min_path_chance, options_.shared_min_path_chance)
                         : options_.min_path_chance;
  }
  void AddContextRows(Pass& pass);
  void AddTreeRows(Pass& pass);
  void AddSegment(Session& session, std::span<const int32_t> nodes, Pass& pass);
  bool EvictTreeFor(const Session& session, const ChosenNodes& chosen);
  std::optional<int32_t> TakeSlot(const Session& session, const ChosenNodes& chosen);
  void Run(Pass& pass);
  ChanceModel& ChancesOf(const Session& session);
  kernels::RowToBranch Branching(const Session& session, int32_t node_idx) const;
  void Expand(Session& session, int32_t node_idx, std::span<const kernels::ScoredToken> ranked);

  Parts parts_;
  DraftForestOptions options_;
  model::BlockPool pool_;  // of contexts
  std::vector<int32_t> free_slots_;
  int32_t num_tree_slots_ = 0;
  absl::btree_map<SessionId, std::unique_ptr<Session>> sessions_;  // in order of their opening
  SessionId next_id_ = 0;
  bool shares_cores_ = false;
  uint64_t num_requests_ = 0;
  std::array<ChanceModel, 3> chances_;  // by Regime
  Counters counters_;
};

}  // namespace foretoken::proposer
