// SPDX-License-Identifier: Apache-2.0
// The draft-model proposer: a small language model reads along with the sequences and grows a tree below each, also
// while the verifier is busy.
//
//   FT_ASSIGN_OR_RETURN(std::unique_ptr<DraftProposer> proposer, DraftProposer::Load(options, metrics));
//   proposer->Start();
//
// A thread that is preempted often shares its cores, with the verifier perhaps; it then grows only what is likely.
//
// One growth thread owns the model and its K/V (DraftForest); streams reach it through mailboxes and take snapshots. An
// advance re-roots the newest snapshot at once, so it is answered without a forward pass wherever the tree had grown
// below what was committed. Otherwise the answer is owed until the new root is expanded. An answer waits for further
// passes while they are worth the verifier's time (answer_timing.h). Growing goes on after an answer, and whenever a
// tree has doubled, or is done, it is announced. A session of which no tree is wanted costs nothing; when one is wanted
// again it catches up.
//
// A tree of sampled children goes out after every pass: to hold it back for what was sampled would be to choose.
//
// The children of a node are what the target would most likely draw there, by its own noise (kernels::BranchRowsArgs);
// their chances are learned (ChanceModel). The vocabulary must be the target's.
//
// Errors: Load fails with what, which file or flag, expected and got. Threads: any for Open and Propose; Step only
// where Start was not called. Source: best-first trees by draft confidence as in EAGLE-2 (2406.16858); keyed drafting
// as in 2408.07978.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/model/runnable_model.h"
#include "common/telemetry/metrics.h"
#include "proposer_service/draft/draft_forest.h"
#include "proposer_service/draft/draft_session.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

struct DraftOptions {
  std::string model_directory;
  std::string device = "cpu";
  std::string cpu_isa = "auto";
  std::string weight_quantization = "none";  // or fp8
  int32_t num_threads = 0;                   // 0: one per core
  int32_t tensor_parallel = 1;               // ranks that share the model, and the threads
  std::optional<int64_t> kv_cache_mb;        // MiB of K/V; unset: 8 full contexts, at most 4 GiB
  DraftForestOptions forest = {};
};

// INVALID_ARGUMENT names the option, expected and got.
absl::Status Validate(const DraftOptions& options);

struct DraftMetrics {
  explicit DraftMetrics(telemetry::Metrics& metrics);

  prometheus::Counter& passes;
  prometheus::Counter& context_rows;
  prometheus::Counter& tree_rows;
  prometheus::Counter& answers;  // first ones to a question; rate of hits = hits / answers
  prometheus::Counter& hits;
  prometheus::Histogram& answer_seconds;
};

class DraftProposer : public Proposer {
 public:
  // The metrics outlive the proposer.
  static absl::StatusOr<std::unique_ptr<DraftProposer>> Load(const DraftOptions& options, telemetry::Metrics& metrics);
  DraftProposer(model::RunnableModel model, const DraftForestOptions& options, telemetry::Metrics& metrics,
                Clock now = SteadyNow);
  // All sessions are gone by then.
  ~DraftProposer() override;

  // Grows on a thread of its own from now on.
  void Start();
  // Takes what streams have left and runs one pass. False: there was neither.
  bool Step();

  const ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<Session> Open(const SessionIntroduction& introduction) override;
  std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) override;

  // For whoever calls Step.
  const DraftForest& forest() const { return forest_; }

 private:
  struct Drafting {
    std::shared_ptr<DraftMailbox> mailbox;
    DraftForest::SessionId session_id = 0;
    TreeRequest tree_request;
    absl::Time asked_at;
    bool had_grown = false;     // the root was expanded when the tree_request came
    int32_t num_published = 0;  // nodes expanded when the tree at this root was published last
  };

  void Run();
  bool TakeMail();
  void Note(const DraftMailbox::Mail& mail, Drafting& drafting);
  void PublishGrown(std::span<const DraftForest::SessionId> touched);
  bool IsWorthPublishing(const Drafting& drafting) const;
  bool IsDue(const Drafting& drafting) const;
  void Publish(Drafting& drafting);
  ExpectedPass NextPass() const;
  void MeasurePass(absl::Duration duration);
  void ShareNextPass();
  void CountWork(const DraftForest::Counters& before);

  const model::RunnableModel model_;
  const Clock now_;
  const std::function<DraftMailbox::Situation()> situation_;
  ProposerDescription description_;
  DraftMetrics metrics_;
  DraftForest forest_;
  absl::flat_hash_map<const DraftMailbox*, DraftForest::SessionId> session_ids_;
  absl::flat_hash_map<DraftForest::SessionId, Drafting> drafting_;
  absl::btree_set<DraftForest::SessionId> owed_;  // sessions with answers owed

  absl::Duration mean_pass_ = absl::InfiniteDuration();  // none yet

  absl::Mutex mutex_;
  std::vector<std::shared_ptr<DraftMailbox>> inbox_ ABSL_GUARDED_BY(mutex_);
  ExpectedPass next_pass_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace foretoken::proposer
