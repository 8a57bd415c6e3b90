// SPDX-License-Identifier: Apache-2.0
// All growing trees of a draft model. The forest runs the model in passes, and each pass serves all sessions.
//
//   DraftForest forest(model, options);
//   DraftForest::SessionId id = forest.Open(introduction);
//   forest.Append(id, prompt);
//   forest.Want(id, {.node_budget = 32});
//   while (!forest.Grow().empty()) continue;
//   TokenTree tree = forest.Find(id).tree.Snapshot(...);
//
// A pass computes missing context rows and tree rows. Sessions with the shortest missing context come first, and long
// prompts are computed in chunks. A quarter of a pass's context rows is kept for the session that has waited longest,
// so that short contexts never stop a long prompt. The tree rows are the most worthwhile frontier nodes of all
// sessions. Children of a node are the tokens that the target would most likely draw, given the draft's row
// (kernels::BranchRowsArgs). A session under rejection sampling gets samples from the row's truncated distribution
// instead (sampled_node.h). At temperature 0 children are guesses under either rule.
//
// If only some tokens may come next, the forest masks the root's row before it chooses the children. A root that was
// expanded without the mask, as a node of the tree before, gets its row computed again. The nodes below the children
// that it keeps stay.
//
// Features. If the model reads the target's hidden states, AppendFeatures brings them. The rows of a context wait for
// their features. The rows of a tree take the outputs of their parents instead, so a tree grows while the verifier is
// busy. When tokens of the tree are committed, their rows become rows of the context, but they are *provisional*: they
// were computed without features, and so was the tree below them. When the features come, the forest computes these
// rows again, in place, and grows the tree anew from the root. To keep the nodes below the root's children would save
// rows, but gives 6 % fewer tokens per step with the demo head, greedy, and as many at temperature 0.8. Until then the
// session answers with the provisional tree. The forest does not keep features, so a session that had to give up its
// K/V is forgotten: it takes part in nothing more.
//
// K/V. The K/V of a context is in blocks, as in the verifier. The K/V of a tree is in single slots, in a part of the
// cache that contexts cannot take. Append moves the committed path's K/V from its slots into the context's blocks, so
// the forest computes a kept node once. When no slot is free, the forest evicts the tree of an idle session. If there
// is none, a session with less than its share of slots evicts the tree of the session that was asked longest ago,
// unless it is itself that session. When a context has no room, the forest refuses the session.
//
// A session is idle while the verifier wants no tree of it. An idle session grows no tree and takes no room from other
// sessions. It keeps its K/V until they need the room. The forest first clears the idle session that was asked longest
// ago. A session that is asked again first computes the context that it missed. A session also becomes idle if it is
// not asked while the other sessions are asked many times.
//
// The features of an idle session must not pile up, because they take the credit of all sessions of its stream: those
// of a long prompt come before its first tree is wanted. So the forest computes rows of idle sessions up to the root,
// once 64 of them wait or as many as a pass takes, in the room that the other sessions leave. A session whose K/V has
// no room is forgotten.
//
// Only passes take time. The forest's state is a function of the calls. With equal chance models, the best nodes of a
// session that has stopped growing do not depend on the other sessions.
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
#include "kernels/ops.h"
#include "proposer_service/draft/chance_model.h"
#include "proposer_service/draft/draft_model.h"
#include "proposer_service/draft/feature_rows.h"
#include "proposer_service/draft/growing_tree.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

struct DraftForestOptions {
  int32_t num_children = 32;             // of an expanded node
  int32_t max_children = 128;            // of an expanded node whose children may all be worth expanding
  int32_t num_sampled_children = 3;      // the same for rejection sampling, where the verifier must test all of them
  int32_t num_distribution_tokens = 32;  // tokens of the truncated distribution that children are sampled from
  uint64_t sampling_salt = 0;      // of this proposer's noise; no other proposer of the same verifier may have the same
  int32_t max_tree_rows = 32;      // nodes expanded in a pass, over all sessions
  int32_t max_context_rows = 128;  // context tokens computed in a pass, over all sessions
  int32_t max_grown_nodes = 512;   // nodes that a session's tree may have expanded, without the root; each takes a slot
  float min_path_chance = 0.0005f;  // the forest does not expand nodes of less worth
  // The bound while other threads want the same cores, because growing takes time from them.
  float shared_min_path_chance = 0.01f;
  float tree_kv_fraction = 0.25f;  // of the K/V cache, for trees
  bool learns_chances = true;      // from committed tokens
};

class DraftForest {
 public:
  using SessionId = uint64_t;

  struct Session {
    SessionId id = 0;
    kernels::SamplingParams sampling;
    bool samples = false;            // children are sampled, not guessed
    std::vector<int32_t> token_ids;  // the context, without the skipped tokens
    uint64_t num_skipped = 0;        // tokens before them that have no row, because no feature comes before their own
    uint64_t context_hash = 0;
    int32_t num_computed = 0;    // rows whose K/V is in the blocks; once the root is expanded, all of them
    int32_t num_settled = 0;     // the first of them, which are not provisional
    int32_t grown_from_row = 0;  // the row that was the root when its feature came last; the tree grew below it
    std::optional<FeatureRows> features;  // unset: the model reads none, or the first is still to come
    bool reads_features = false;
    std::vector<int32_t> blocks;
    GrowingTree tree;
    TreeRequest tree_request;
    speculation::AllowedTokens root_allowed;  // the tokens that the root's children were chosen among
    // The number of the session's last request for a tree, or of the last one before its opening; counts up over all
    // sessions.
    uint64_t last_request = 0;
    // The number of passes when the session began to wait for rows of its context. Unset: it does not wait.
    std::optional<uint64_t> waits_since;
    // A session that is refused or forgotten holds no blocks and no slots.
    bool is_refused = false;    // no room for its context
    bool is_forgotten = false;  // its context cannot be computed again, because the features are gone

    // The number of rows.
    int32_t size() const { return static_cast<int32_t>(token_ids.size()); }
    uint64_t position() const { return num_skipped + token_ids.size(); }
    bool is_idle() const { return tree_request.node_budget == 0; }
    bool is_out() const { return is_refused || is_forgotten; }
    bool awaits_first_feature() const { return reads_features && !features.has_value(); }
    // The root's children were chosen among other tokens than the allowed ones, so its row must be computed again.
    bool is_root_stale() const { return tree.is_root_expanded() && !(root_allowed == tree_request.allowed); }
    // The tree is an answer to the request.
    bool has_answer() const { return tree.is_root_expanded() && !is_root_stale(); }
    // Rows of the context that are not computed, or must be computed again, and can be.
    int32_t first_missing() const { return num_settled - (num_settled == size() && is_root_stale() ? 1 : 0); }
    int32_t num_missing() const {
      if (awaits_first_feature()) return 0;
      return (features.has_value() ? std::min(size(), features->end_row()) : size()) - first_missing();
    }
    // The rows between the last row with a given feature and the root, the root included.
    int32_t num_provisional() const { return size() - num_settled; }
    // The rows that the model predicts before the root's children. More than num_provisional() if features settle rows
    // before the root, but not the root: its tree still comes from the row that it grew from.
    int32_t num_predicted() const { return size() - 1 - grown_from_row; }
    // The rows of an idle session that have features, without the root, whose children depend on the request.
    int32_t num_early() const {
      if (!is_idle() || is_out() || !features.has_value()) return 0;
      return std::max(std::min(num_missing(), size() - 1 - num_settled), 0);
    }
    // How many of the best nodes the tree aims at; 0: all. The verifier tests sampled children group by group, so the
    // best nodes of a sampled tree are not the nodes that are sent.
    int32_t num_sent() const { return samples ? 0 : tree_request.node_budget; }
  };

  struct Counters {
    uint64_t num_passes = 0;
    uint64_t num_context_rows = 0;
    uint64_t num_tree_rows = 0;
    uint64_t num_evicted_trees = 0;
    // Roots whose next token came, of rows that were not provisional; and those where it was among the best children.
    static constexpr size_t kBestChildren = 4;
    uint64_t num_tried_roots = 0, num_hit_roots = 0;
  };

  // The model outlives the forest. Its limits hold the rows of a pass.
  DraftForest(DraftModel& model, const DraftForestOptions& options);

  SessionId Open(const SessionIntroduction& introduction);
  // Appends committed tokens. An id that the model does not have makes the forest refuse the session.
  void Append(SessionId id, std::span<const int32_t> token_ids);
  // As Session::AppendFeatures.
  void AppendFeatures(SessionId id, uint64_t first_position, std::span<const uint16_t> values);
  void Want(SessionId id, const TreeRequest& tree_request);
  void Close(SessionId id);
  const Session& Find(SessionId id) const { return *sessions_.at(id); }

  // Runs one pass. Returns the sessions of the pass. Empty: nothing can grow before the next call of Append or Want.
  std::vector<SessionId> Grow();
  // Returns the sessions that were forgotten to make room for others since the last call. Some may be closed.
  std::vector<SessionId> TakeForgotten() { return std::exchange(forgotten_, {}); }

  // Whether other threads want the cores that passes run on.
  void set_shares_cores(bool shares_cores) { shares_cores_ = shares_cores; }

  // Whether the session's tree can still grow, or get better by features that have come.
  bool WantsRows(const Session& session) const { return WantsContextRows(session) || WantsTreeRows(session); }

  const DraftForestOptions& options() const { return options_; }
  // The longest context that the model and the part of the cache for contexts hold.
  int32_t max_context_tokens() const;
  // In the order of their opening.
  const absl::btree_map<SessionId, std::unique_ptr<Session>>& sessions() const { return sessions_; }
  int32_t num_sessions() const { return static_cast<int32_t>(sessions_.size()); }
  const Counters& counters() const { return counters_; }
  // How children are chosen. Each regime has its own chance model.
  enum class Regime { kGreedy, kKeyedDraw, kSampled };
  const ChanceModel& chances(Regime regime) const { return chances_[static_cast<size_t>(regime)]; }
  // Dies unless blocks, slots and trees agree.
  void CheckIntegrity() const;

 private:
  struct Pass;
  using ChosenNodes = absl::btree_map<SessionId, std::vector<int32_t>>;  // nodes to expand in a pass

  bool Extend(Session& session, int32_t num_positions);
  void LimitDepth(Session& session) const;
  int32_t NumIdleBlocks() const;
  void ClearIdleSession();
  void IdleUnaskedSessions();
  void MovePath(Session& session, std::span<const int32_t> slots);
  void Refuse(Session& session);
  void Forget(Session& session);
  void Clear(Session& session);
  void Learn(const Session& session, std::span<const int32_t> committed);
  bool WantsContextRows(const Session& session) const;
  bool WantsTreeRows(const Session& session) const;
  float MinWorth() const {
    return shares_cores_ ? std::max(options_.min_path_chance, options_.shared_min_path_chance)
                         : options_.min_path_chance;
  }
  void AddContextRows(Pass& pass);
  void AddEarlyRows(int32_t num_free, Pass& pass);
  int32_t AddContext(Session& session, int32_t num_rows, Pass& pass);
  void AddTreeRows(Pass& pass);
  void AddSegment(Session& session, std::span<const int32_t> nodes, Pass& pass);
  bool EvictTreeFor(const Session& session, const ChosenNodes& chosen);
  std::optional<int32_t> TakeSlot(const Session& session, const ChosenNodes& chosen);
  void Run(Pass& pass);
  ChanceModel& ChancesOf(const Session& session);
  static float ScoreScale(const Session& session);
  kernels::RowToBranch Branching(const Session& session, int32_t node_idx) const;
  void Expand(Session& session, int32_t node_idx, std::span<const kernels::ScoredToken> ranked,
              std::optional<float> confidence);

  DraftModel& model_;
  DraftForestOptions options_;
  model::BlockPool pool_;  // of the contexts
  std::vector<int32_t> free_slots_;
  int32_t num_tree_slots_ = 0;
  absl::btree_map<SessionId, std::unique_ptr<Session>> sessions_;  // in the order of their opening
  SessionId next_id_ = 0;
  bool shares_cores_ = false;
  uint64_t num_requests_ = 0;
  uint64_t next_look_ = 0;              // of IdleUnaskedSessions, by the number of requests
  std::vector<SessionId> forgotten_;    // to make room, since TakeForgotten
  std::array<ChanceModel, 3> chances_;  // by Regime
  Counters counters_;
};

}  // namespace foretoken::proposer
