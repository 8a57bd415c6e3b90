// SPDX-License-Identifier: Apache-2.0
// The engine accepts requests, runs steps and publishes outputs. One thread owns every sequence and all K/V. Other
// threads leave requests and aborts in the inbox.
//
//   Engine engine(config, {.transformer = ..., .kv = ..., .tokenizer = ..., .proposers = ..., .publish = ...});
//   engine.Start();
//   FT_ASSIGN_OR_RETURN(QueuePlace place, engine.Reserve({.num_bytes = 120, .tenant = "a"}));
//   FT_RETURN_IF_ERROR(engine.Submit(std::move(place), std::move(request)));
//
// Errors: Reserve fails with RESOURCE_EXHAUSTED if too many requests or tokens wait, and with UNAVAILABLE while the
// engine drains. Submit fails with RESOURCE_EXHAUSTED if too many samples or tokens wait, and with INVALID_ARGUMENT for
// a prompt that can never fit. Both fail with DEADLINE_EXCEEDED after the request's deadline, and with
// RESOURCE_EXHAUSTED, DEADLINE_TOO_SHORT, if no token can be made before it. A later error of one request is the
// request's last output: INTERNAL for logits that are not finite, INVALID_ARGUMENT if the sampling parameters leave no
// token to draw, an error of the deadline if the request's turn comes too late, or RESOURCE_EXHAUSTED, QUEUE_SHED, if
// the request has to leave a full queue to another tenant. The tokens before the error come first, as without
// speculation.
// Threads: Reserve, Submit, Abort, Drain, GetStats and pulse from any thread.
// The engine calls `publish` on its own thread with the outputs of all samples. `publish` must not wait for clients.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/model/transformer.h"
#include "common/tokenizer/tokenizer.h"
#include "verifier_service/engine/active_requests.h"
#include "verifier_service/engine/deadline_forecast.h"
#include "verifier_service/engine/feature_planes.h"
#include "verifier_service/engine/grammar_masks.h"
#include "verifier_service/engine/learning_passes.h"
#include "verifier_service/engine/planner_stats.h"
#include "verifier_service/engine/scheduler.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/engine/stall_detector.h"
#include "verifier_service/engine/step_plan.h"
#include "verifier_service/engine/step_timer.h"
#include "verifier_service/engine/tree_batch.h"
#include "verifier_service/planner/prompt_rows.h"
#include "verifier_service/planner/speculation_policy.h"
#include "verifier_service/proposers/proposer_client.h"
#include "verifier_service/request/active_request.h"
#include "verifier_service/request/drawable_ids.h"
#include "verifier_service/request/queue_place.h"
#include "verifier_service/request/request.h"
#include "verifier_service/request/step_report.h"
#include "verifier_service/request/tenant_shares.h"

namespace foretoken::verifier {

using Publish = std::function<void(std::vector<SampleOutput>)>;

struct EngineConfig {
  // The bounds of the queue. Beyond them a request gets RESOURCE_EXHAUSTED. A request and all its tokens count while
  // one of its samples waits.
  int32_t max_queued_requests = 256;             // including requests that are being tokenized
  int32_t max_queued_samples = 1024;             // of submitted requests
  int64_t max_queued_tokens = int64_t{1} << 20;  // of prompts, predictions and lists of token ids
  // A wait of this length counts as one level of priority, so that no request waits forever.
  absl::Duration priority_aging = absl::Seconds(10);
  int32_t max_running_samples = 64;  // sequences in a step
  int32_t max_step_rows = 512;       // rows of one forward pass: roots, tree nodes and prompt tokens
  int32_t max_tree_nodes = 32;       // per sequence and step; a request can lower it
  PromptLimits prompts;              // how much prompts may delay the tokens of decoding sequences
  bool enable_prefix_cache = true;
  // A request whose grammar takes more time for a token's mask, on average, is ended.
  absl::Duration max_mask_time = absl::Milliseconds(5);
  TenantShares tenants;  // what each tenant may have of the queue and of the running samples
};

// Returns INVALID_ARGUMENT with the field, the expected value and the given one.
absl::Status Validate(const EngineConfig& config);

struct EngineParts {
  model::Transformer* transformer = nullptr;  // must allow max_step_rows rows, and as many rows of logits
  model::KvCache* kv = nullptr;
  const tokenizer::Tokenizer* tokenizer = nullptr;
  ProposerClient* proposers = nullptr;
  std::vector<int32_t> end_token_ids;  // end a sample, unless the request sets ignore_eos
  Publish publish;
  Clock now = SteadyNow;
  Clock compute_time = ThreadTime;                     // what grammars take is measured on it
  std::function<void(const LearningPasses&)> learned;  // called before the first step, on the engine's thread; or null
};

// Gauges and counters. The first four are of now, the others of the end of the last step.
struct EngineStats {
  int64_t num_queued = 0;          // requests with a reserved place or a waiting sample
  int64_t num_queued_samples = 0;  // waiting samples, including preempted ones
  int64_t num_queued_tokens = 0;   // tokens that the queued requests hold
  int64_t num_queued_tenants = 0;  // tenants with queued requests
  int32_t num_running = 0;         // running samples
  int32_t num_blocks = 0;
  int32_t num_free_blocks = 0;
  int32_t num_cached_blocks = 0;  // no sequence uses them; the prefix cache can find them
  uint64_t num_steps = 0;
  uint64_t num_rows = 0;
  uint64_t num_prompt_tokens = 0;  // prompt tokens that steps computed
  uint64_t num_cached_tokens = 0;  // prompt tokens that the prefix cache had
  uint64_t num_generated_tokens = 0;
  uint64_t num_preemptions = 0;
  uint64_t num_masks = 0;     // of rows of sequences with a grammar
  absl::Duration mask_time;   // to make them
  uint64_t num_sat_out = 0;   // steps of samples with slow masks that other samples did not wait for
  int32_t num_preempted = 0;  // preempted samples that wait to run again
  StepTimes times;            // of all steps
  PlannerStats planner;
  SpeculationCounts speculation;  // of samples that have ended, but accepted_lengths of all steps
  // Of samples that have ended:
  std::vector<ProposerCount> proposers;  // one per ProposerClient::Names(), then those of the engine
};

class Engine {
 public:
  Engine(const EngineConfig& config, EngineParts parts);
  ~Engine();  // stops the thread; unfinished requests end with kAbort

  // Runs steps on a separate thread until Stop. Before its first step the thread runs learning passes. Start returns
  // after the most important passes; the others run until a request comes. Tests do not call Start: they call Step
  // themselves.
  void Start();
  void Stop();
  // Runs one step. If there is nothing to compute, it only empties the inbox. Returns true if there is more to do.
  bool Step();

  // Reserves a place in the queue for a request that is not parsed yet.
  absl::StatusOr<QueuePlace> Reserve(const RequestArrival& arrival = {});
  // The caller chooses the request's ticket. The ticket was never used before.
  absl::Status Submit(QueuePlace place, GenerationRequest request);
  // Ends the request within one step. Its samples finish with kAbort. Does nothing if the request is unknown or has
  // ended.
  void Abort(Ticket ticket);
  // From now on Reserve refuses new requests. Accepted requests continue.
  void Drain();

  EngineStats GetStats() const;
  // The state of the engine's thread.
  Pulse pulse() const;
  // The largest number of tokens of prompt and output together: the smaller limit of the model and of the K/V cache.
  int32_t max_context_tokens() const { return max_context_tokens_; }

 private:
  struct Inbox {
    std::vector<std::shared_ptr<ActiveRequest>> requests;
    std::vector<Ticket> aborts;
  };

  // A step that the device computes. The device fills `paths` and `scores` until Finish returns. The engine does not
  // read them before.
  struct LaunchedStep {
    TreeBatch batch;
    std::vector<kernels::AcceptedPath> paths;               // one per entry of batch.trees
    std::vector<std::vector<kernels::RowLogprobs>> scores;  // one per entry of batch.prompt_scores
  };
  // The results of a step: the tokens that the target drew, and the time of the step.
  struct StepResult {
    TreeBatch batch;
    std::vector<kernels::AcceptedPath> paths;
    std::vector<std::vector<kernels::RowLogprobs>> scores;
    double step_ms = 0;  // the forward pass and the draw
  };
  // The outcome of a committed step.
  struct StepOutcome {
    std::vector<int32_t> num_committed;  // committed tokens, one entry per planned sequence
    int32_t num_emitted = 0;             // emitted tokens of all sequences
    int32_t num_roots = 0;               // drawing sequences that proposers know
    int32_t num_guessed = 0;             // emitted tokens that a tree had guessed
    int32_t num_trees = 0;               // drawing sequences with nodes
    double step_ms = 0;
  };

  void Run();

  // The stages of a step, in order. Each stage takes the result of the stage before it.
  void Admit();
  std::vector<Guess> Gather(const StepPolicy& policy);
  std::vector<PlannedSequence> Plan(std::span<const Guess> guesses, const StepPolicy& policy);
  LaunchedStep Launch(std::span<const PlannedSequence> plan);
  StepResult Finish(std::span<const PlannedSequence> plan, const StepPolicy& policy, LaunchedStep step);
  StepOutcome Commit(std::span<PlannedSequence> plan, const StepPolicy& policy, StepResult result);
  void Publish();

  // Runs between Launch and Finish.
  void Prepare();
  // The stages after Commit.
  StepPolicy Decide(std::span<const PlannedSequence> plan, const StepForecast& forecast, const StepOutcome& outcome);
  void Advance(std::span<const PlannedSequence> plan, const StepOutcome& outcome, const StepPolicy& policy);
  void Account(std::span<const PlannedSequence> plan, const StepPolicy& policy, const StepForecast& forecast,
               const StepOutcome& outcome);
  void EndStep();

  void TakeInbox();
  void TakeRequests();
  void AdmitWaiting();
  bool AdmitSome();
  static constexpr char kFirstToken[] = "for the first token at best";
  absl::Status CheckDeadline(absl::Time deadline, absl::Duration needed, absl::string_view what_for) const;
  absl::Status CheckTurn(const Sequence& sequence) const;
  void Enqueue(std::vector<std::shared_ptr<ActiveRequest>> requests);
  void ShedExcess();
  std::unique_ptr<Sequence> BeginNext(const std::shared_ptr<ActiveRequest>& active);
  void End(Ticket ticket);
  int32_t DropUnbegun(ActiveRequest& active);
  void OpenAtProposers(Sequence& sequence, const StepPolicy& policy);
  int32_t Learn(const PlannedSequence& planned, std::span<const int32_t> committed);
  void CountRows(std::span<const PlannedSequence> plan, const TreeBatch& batch);
  void Fail(ActiveRequest& active, absl::Status error);
  void TakeOutput(Sequence& sequence);
  void Retire();
  bool is_asynchronous() const { return parts_.transformer->backend().is_asynchronous(); }
  bool is_awaited();
  double PrepareMs() const;  // of the host, while an asynchronous device computes
  StepTimes Times() const;

  const EngineConfig config_;
  EngineParts parts_;
  const int32_t max_context_tokens_;
  const DrawableIds drawable_;

  QueueSpace queue_;  // outlives the requests
  DeadlineForecast forecast_;
  mutable std::atomic<uint32_t> num_too_short_{0};  // deadlines that seemed too near

  // Only the engine's thread uses these.
  Scheduler scheduler_;
  ActiveRequests requests_;
  Experience experience_;
  GrammarMasks grammar_masks_;
  MaskTurns mask_turns_;
  FeaturePlanes feature_planes_;
  SpeculationPolicy speculation_;
  StepPolicy policy_;                      // for the coming step
  std::optional<absl::Time> cycle_began_;  // the time of the last decision; unset while no sequence runs
  StepTimer timer_;
  std::vector<SampleOutput> outputs_;  // not published yet
  EngineStats own_stats_;

  std::atomic<bool> is_draining_{false};
  std::atomic<uint64_t> num_beats_{0};
  std::atomic<bool> is_idle_{true};
  absl::Notification is_ready_;

  mutable absl::Mutex mutex_;
  Inbox inbox_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace foretoken::verifier
