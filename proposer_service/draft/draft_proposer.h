// SPDX-License-Identifier: Apache-2.0
// The draft-model proposer. A small model follows the sequences and grows a token tree below each, also while the
// verifier computes. The model is a language model of its own, or a drafter that reads the target's hidden states.
//
//   FT_ASSIGN_OR_RETURN(std::unique_ptr<DraftProposer> proposer, DraftProposer::Load(options, metrics));
//   proposer->Start();
//
// One growth thread owns the model and its K/V (DraftForest). Streams send it tokens and take snapshots of trees
// through mailboxes (draft_session.h). An advance re-roots the newest snapshot at once, so the proposer answers without
// a forward pass if the tree has grown below the committed path. Otherwise the proposer owes the answer until the new
// root is expanded. An owed answer waits for further passes while they are worth the verifier's time (answer_timing.h).
// The tree grows on after the answer, and the proposer announces it when it has doubled or is complete. An idle session
// costs nothing but the rows whose features have come. When the verifier wants trees of it again, the forest first
// computes the missing context.
//
// A verifier leaves a proposer that is silent for 5 s, and then every context begins anew. So after kMaxAnswerTime the
// proposer answers with an empty tree. It sends another tree as soon as one has grown. A session that gets no update
// for kMaxUnheardTime becomes idle, so that its K/V makes room for others: its stream may be cut off, and then its
// verifier opens the same context on another stream.
//
// If the operating system often preempts the growth thread, another process wants its cores, perhaps the verifier. The
// thread then expands likely nodes only.
//
// When features settle the root of a provisional tree, the forest grows it anew. The proposer sends the new tree as
// soon as it is worth as much as the old one.
//
// The proposer sends a tree of sampled children after every pass. If the time depended on the sample, the children
// would no longer be a fair sample.
//
// The children of a node are the tokens that the target would most likely draw there with its own noise
// (kernels::BranchRowsArgs). The proposer learns their chances (ChanceModel). The vocabulary must be the target's.
//
// Errors: an error of Load names the file or flag, expected and got. Threads: any for Open and Propose; Step only
// without Start. Source: best-first trees by draft confidence as in EAGLE-2 (2406.16858); keyed drafting as in
// 2408.07978.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/model/runnable_model.h"
#include "common/telemetry/metrics.h"
#include "kernels/backend_options.h"
#include "proposer_service/draft/draft_forest.h"
#include "proposer_service/draft/draft_session.h"
#include "proposer_service/draft/drafter_watch.h"
#include "proposer_service/draft/transformer_draft.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

struct DraftOptions {
  std::string model_directory;
  // For methods that read the target's hidden states.
  std::string target_directory;
  std::string projection_directory;  // where verifiers may read the drafter's projection; empty: none
  std::string feature_layers;  // the k of each S_k that the drafter reads, with commas or +; empty: as its file says
  bool try_on_target = true;   // before it serves (drafter_trial.h), where the target can be loaded
  std::string device = "cpu";
  std::string cpu_isa = "auto";
  kernels::QuantizationOptions quantization;
  int32_t num_threads = 0;                  // 0: one per core
  int32_t tensor_parallel = 1;              // ranks that share the model, and the threads
  std::optional<int64_t> kv_cache_mb;       // MiB of K/V; unset: 8 full contexts, at most 4 GiB
  std::optional<int64_t> expert_memory_mb;  // MiB of packed experts; unset: all of them
  DraftForestOptions forest = {};
  int64_t max_kept_logit_bytes = int64_t{256} << 20;  // of drafters that guess blocks (features/block_draft.h)
};

// INVALID_ARGUMENT names the option, expected and got.
absl::Status Validate(const DraftOptions& options);

struct DraftMetrics {
  explicit DraftMetrics(telemetry::Metrics& metrics);

  prometheus::Counter& passes;
  prometheus::Counter& context_rows;
  prometheus::Counter& tree_rows;
  prometheus::Counter& answers;  // first answers to requests; the hit rate is hits / answers
  prometheus::Counter& hits;
  prometheus::Histogram& answer_seconds;
  prometheus::Counter& expert_loads;
  prometheus::Gauge& expert_bytes;
};

class DraftProposer : public Proposer {
 public:
  static constexpr absl::Duration kMaxAnswerTime = absl::Seconds(1);
  static constexpr absl::Duration kMaxUnheardTime = absl::Seconds(4);
  // The new sessions between two passes; the proposer refuses more. Sessions that have ended wait for the growth thread
  // outside of the service's limits, so a verifier that only opens and closes sessions would fill the memory.
  static constexpr int32_t kMaxNewSessions = 4096;

  // The metrics outlive the proposer.
  static absl::StatusOr<std::unique_ptr<DraftProposer>> Load(const DraftOptions& options, telemetry::Metrics& metrics);
  // A proposer whose noise is its own.
  static std::unique_ptr<DraftProposer> Make(Drafter drafter, const DraftForestOptions& options,
                                             telemetry::Metrics& metrics);
  DraftProposer(Drafter drafter, const DraftForestOptions& options, telemetry::Metrics& metrics, Clock now = SteadyNow);
  DraftProposer(model::RunnableModel model, const DraftForestOptions& options, telemetry::Metrics& metrics,
                Clock now = SteadyNow)
      : DraftProposer(MakeTransformerDrafter(std::move(model)), options, metrics, std::move(now)) {}
  // No session may be left.
  ~DraftProposer() override;

  // Starts the growth thread.
  void Start();
  // Applies the updates of the mailboxes and runs one pass. False: there was no update and nothing to compute.
  bool Step();

  const ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<Session> Open(const SessionIntroduction& introduction) override;
  std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) override;

  // For a caller of Step.
  const DraftForest& forest() const { return forest_; }

 private:
  // The growth thread's view of a session.
  struct SessionState {
    std::shared_ptr<DraftMailbox> mailbox;
    DraftForest::SessionId session_id = 0;
    TreeRequest tree_request;
    absl::Time asked_at;
    absl::Time heard_at;        // when the growth thread took the last update
    bool had_grown = false;     // the root was expanded when the tree request came
    int32_t num_published = 0;  // expanded nodes of the last published tree at this root
    // Set: the mailbox has a tree of a provisional root, and a step with it has this mean number of tokens.
    std::optional<double> provisional_value;
  };

  void Run();
  bool TakeUpdates();
  // Makes sessions idle that have long had no update and have none in the inbox.
  void IdleUnheardSessions(std::span<const std::shared_ptr<DraftMailbox>> inbox);
  void Close(DraftForest::SessionId id);
  void ApplyUpdate(const DraftMailbox::Update& update, SessionState& state);
  void PublishGrown(std::span<const DraftForest::SessionId> touched);
  void AnswerOverdue();
  void CountFeatures(SessionState& state);
  std::optional<double> ProvisionalValue(const SessionState& state) const;
  bool IsWorthPublishing(const SessionState& state) const;
  bool IsDue(const SessionState& state) const;
  void Publish(SessionState& state);
  ExpectedPass NextPass() const;
  void MeasurePass(absl::Duration duration);
  void ShareNextPass();
  void CountWork(const DraftForest::Counters& before);

  const std::unique_ptr<DraftModel> model_;
  const Clock now_;
  const std::function<DraftMailbox::Situation()> situation_;
  DraftMetrics metrics_;
  uint64_t num_expert_loads_ = 0;  // that the metrics count
  DraftForest forest_;
  const ProposerDescription description_;  // with the limit of the forest
  DrafterWatch watch_;
  absl::flat_hash_map<const DraftMailbox*, DraftForest::SessionId> session_ids_;
  absl::flat_hash_map<DraftForest::SessionId, SessionState> session_states_;
  absl::btree_set<DraftForest::SessionId> owed_;  // sessions with an owed answer

  absl::Duration mean_pass_ = absl::InfiniteDuration();  // infinite: no pass yet

  // A std::mutex, because the timed waits of absl::Mutex follow the system's clock. It guards the inbox, the number of
  // new sessions, the next pass and the stop.
  std::mutex mutex_;
  std::condition_variable wake_;  // of Run
  std::vector<std::shared_ptr<DraftMailbox>> inbox_;
  int32_t num_new_sessions_ = 0;  // since the growth thread emptied the inbox
  ExpectedPass next_pass_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace foretoken::proposer
