// SPDX-License-Identifier: Apache-2.0
// The engine: takes requests in, runs steps, gives outputs out. One thread owns every sequence and all K/V and takes no
// lock inside a step; other threads reach it through the inbox.
//
//   Engine engine(config, {.transformer = ..., .kv = ..., .tokenizer = ..., .proposers = ..., .publish = ...});
//   engine.Start();
//   FT_ASSIGN_OR_RETURN(QueuePlace place, engine.Reserve());
//   FT_RETURN_IF_ERROR(engine.Submit(std::move(place), std::move(request)));
//
// Errors: Reserve fails with RESOURCE_EXHAUSTED when too many requests or tokens wait, UNAVAILABLE when draining;
// Submit with RESOURCE_EXHAUSTED when too many samples or tokens wait, INVALID_ARGUMENT for a prompt that can never
// fit. What goes wrong with one request later comes as that request's last output: INTERNAL for logits that are not
// finite, INVALID_ARGUMENT where its sampling parameters leave no token to draw; the tokens before it come first, as
// without speculation.
// Threads: Reserve, Submit, Abort, Drain, GetStats and pulse from any.
// `publish` is called on the engine's thread, at most once for a step, with all samples' outputs, and must not block.
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

namespace foretoken::verifier {

using Publish = std::function<void(std::vector<SampleOutput>)>;

struct EngineConfig {
  // The queue's bounds; beyond: RESOURCE_EXHAUSTED. A request waits, with all its tokens, while a sample of it does.
  int32_t max_queued_requests = 256;             // those that are being tokenised included
  int32_t max_queued_samples = 1024;             // of submitted requests
  int64_t max_queued_tokens = int64_t{1} << 20;  // of their prompts, predictions and lists of token ids
  // A wait of this length counts as one level of priority, so that no request waits for ever.
  absl::Duration priority_aging = absl::Seconds(10);
  int32_t max_running_samples = 64;  // sequences in a step
  int32_t max_step_rows = 512;       // rows of one forward pass: roots, tree nodes and prompt tokens
  int32_t max_tree_nodes = 32;       // per sequence and step; a request can lower it
  PromptLimits prompts;              // what prompts may take from streams
  bool enable_prefix_cache = true;
};

// INVALID_ARGUMENT naming the field, expected and got.
absl::Status Validate(const EngineConfig& config);

struct EngineParts {
  model::Transformer* transformer = nullptr;  // its limits hold max_step_rows rows, with logits
  model::KvCache* kv = nullptr;
  const tokenizer::Tokenizer* tokenizer = nullptr;
  ProposerClient* proposers = nullptr;
  std::vector<int32_t> end_token_ids;  // what ends a sample, unless it ignores that
  Publish publish;
  Clock now = SteadyNow;
  std::function<void(const LearningPasses&)> learned;  // on the engine's thread, before its first step; or null
};

// Gauges and counters, as of the end of the last step.
struct EngineStats {
  int64_t num_queued = 0;          // requests, reserved or waiting
  int64_t num_queued_samples = 0;  // that wait, preempted ones included
  int64_t num_queued_tokens = 0;   // that their requests hold
  int32_t num_running = 0;         // samples
  int32_t num_blocks = 0;
  int32_t num_free_blocks = 0;
  int32_t num_cached_blocks = 0;  // held by nobody, but findable
  uint64_t num_steps = 0;
  uint64_t num_rows = 0;
  uint64_t num_prompt_tokens = 0;  // computed
  uint64_t num_cached_tokens = 0;
  uint64_t num_generated_tokens = 0;
  uint64_t num_preemptions = 0;
  int32_t num_preempted = 0;  // samples that wait to run again
  StepTimes times;            // of all steps
  PlannerStats planner;
  // Of samples that have ended:
  SpeculationCounts speculation;
  std::vector<ProposerCount> proposers;  // as ProposerClient::Names(), then the clients' predictions
};

class Engine {
 public:
  Engine(const EngineConfig& config, EngineParts parts);
  ~Engine();  // stops the thread; running requests end with kAbort

  // Steps on a thread of its own until Stop. Returns when that thread has run the passes that the planner can least do
  // without; it goes on learning what rows cost until a request comes. Tests call Step themselves instead.
  void Start();
  void Stop();
  // One step, or only the inbox when there is nothing to compute. Returns whether there is more to do.
  bool Step();

  // For a request whose message has so many bytes.
  absl::StatusOr<QueuePlace> Reserve(int64_t num_bytes = 0);
  // The ticket is the caller's choice, never used before.
  absl::Status Submit(QueuePlace place, GenerationRequest request);
  // Ends the request within one step; its samples finish with kAbort. One that is not known (any more) is left alone.
  void Abort(Ticket ticket);
  // Refuses what is new from now on; what is accepted goes on.
  void Drain();

  EngineStats GetStats() const;
  // Of the thread: it beats once a step.
  Pulse pulse() const { return {.num_beats = num_beats_.load(), .is_idle = is_idle_.load()}; }
  // Tokens that prompt and output may have together: what the model and the K/V cache both hold.
  int32_t max_context_tokens() const { return max_context_tokens_; }

 private:
  struct Inbox {
    std::vector<std::shared_ptr<ActiveRequest>> requests;
    std::vector<Ticket> aborts;
  };

  // A step on the device, which fills paths and scores until Finish; in between the engine does not look at them.
  struct LaunchedStep {
    TreeBatch batch;
    std::vector<kernels::AcceptedPath> paths;               // as batch.trees
    std::vector<std::vector<kernels::RowLogprobs>> scores;  // as batch.prompt_scores
  };
  // What the target said.
  struct StepResult {
    TreeBatch batch;
    std::vector<kernels::AcceptedPath> paths;
    std::vector<std::vector<kernels::RowLogprobs>> scores;
    double step_ms = 0;  // the forward pass and the draw
  };
  // What became of it.
  struct StepOutcome {
    std::vector<int32_t> num_committed;  // tokens, as the plan
    int32_t num_emitted = 0;             // tokens, of all sequences
    int32_t num_roots = 0;               // of sequences that proposers know
    int32_t num_guessed = 0;             // tokens that some tree had right
    double step_ms = 0;
  };

  void Run();

  // The stages of a step, in order. Each takes what the stage before returned.
  void Admit();
  std::vector<Guess> Gather(const StepPolicy& policy);
  std::vector<PlannedSequence> Plan(std::span<const Guess> guesses, const StepPolicy& policy);
  LaunchedStep Launch(std::span<const PlannedSequence> plan);
  StepResult Finish(std::span<const PlannedSequence> plan, const StepPolicy& policy, LaunchedStep step);
  StepOutcome Commit(std::span<PlannedSequence> plan, const StepPolicy& policy, StepResult result);
  void Publish();

  // Between launch and finish.
  void Prepare();
  // After commit.
  StepPolicy Decide(std::span<const PlannedSequence> plan, const StepForecast& forecast, const StepOutcome& outcome);
  void Advance(std::span<const PlannedSequence> plan, const StepOutcome& outcome, const StepPolicy& policy);
  void Account(std::span<const PlannedSequence> plan, const StepForecast& forecast, const StepOutcome& outcome);
  void EndStep();

  void TakeInbox();
  void TakeRequests();
  void AdmitWaiting();
  void Enqueue(std::vector<std::shared_ptr<ActiveRequest>> requests);
  std::unique_ptr<Sequence> BeginNext(const std::shared_ptr<ActiveRequest>& active);
  void End(Ticket ticket);
  int32_t DropUnbegun(ActiveRequest& active);
  void OpenAtProposers(Sequence& sequence, const StepPolicy& policy);
  int32_t Learn(const PlannedSequence& planned, std::span<const int32_t> committed);
  void CountRows(std::span<const PlannedSequence> plan, const TreeBatch& batch);
  void Fail(ActiveRequest& active, kernels::DrawStatus status);
  void TakeOutput(Sequence& sequence);
  void Retire();
  bool is_asynchronous() const { return parts_.transformer->backend().is_asynchronous(); }
  bool is_awaited();
  StepTimes Times() const;

  const EngineConfig config_;
  EngineParts parts_;
  const int32_t max_context_tokens_;
  const DrawableIds drawable_;

  QueueSpace queue_;  // outlives the requests

  // The engine's thread only.
  Scheduler scheduler_;
  ActiveRequests requests_;
  Experience experience_;
  SpeculationPolicy speculation_;
  StepPolicy policy_;                      // for the coming step
  std::optional<absl::Time> cycle_began_;  // when the policy was decided; unset while nothing runs
  StepTimer timer_;
  std::vector<SampleOutput> outputs_;  // to be published
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
