// SPDX-License-Identifier: Apache-2.0
// The engine: takes requests in, runs steps, gives outputs out. One thread owns every sequence and all K/V and takes no
// lock inside a step; other threads reach it through the inbox.
//
//   Engine engine(config, {.transformer = ..., .tokenizer = ..., .proposers = ..., .publish = ...});
//   engine.Submit(std::move(request));
//
// Errors: Submit fails with RESOURCE_EXHAUSTED when the queue is full, UNAVAILABLE when draining, ALREADY_EXISTS for a
// request_id in use. What goes wrong with one request later comes as that request's last output.
// Threads: Reserve, Submit, Abort, Drain, GetStats from any; `publish` is called on the engine's thread, once a step, with the
// outputs of all samples, and must not block.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/model/generation_config.h"
#include "common/model/transformer.h"
#include "common/tokenizer/tokenizer.h"
#include "verifier_service/proposer_pool.h"
#include "verifier_service/request.h"

namespace foretoken::verifier {

using Publish = std::function<void(std::vector<SampleOutput>)>;


struct EngineConfig {
  int32_t max_queued_requests = 256;    // waiting, tokenising included; beyond: RESOURCE_EXHAUSTED
  int32_t max_running_samples = 64;     // sequences in a step
  int32_t max_step_rows = 512;          // rows of one forward pass: roots, tree nodes and prompt tokens
  int32_t max_tree_nodes = 32;          // per sequence and step; a request can lower it
  float max_inter_token_growth = 1.5f;  // how much longer a step may get for prompt chunks while others stream
  bool enable_prefix_cache = true;
};

absl::Status Validate(const EngineConfig& config);

struct EngineParts {
  model::Transformer* transformer = nullptr;
  const tokenizer::Tokenizer* tokenizer = nullptr;
  ProposerClient* proposers = nullptr;
  std::vector<int32_t> end_token_ids;  // of config.json and generation_config.json
  Publish publish;
};

// Gauges and counters, as of the end of the last step.
struct EngineStats {
  int32_t num_queued = 0;   // reserved or waiting
  int32_t num_running = 0;  // samples
  int32_t num_free_blocks = 0;
  int32_t num_blocks = 0;
  uint64_t num_steps = 0;
  uint64_t num_prompt_tokens = 0;  // computed
  uint64_t num_cached_tokens = 0;
  uint64_t num_generated_tokens = 0;
  uint64_t num_preemptions = 0;
  std::vector<ProposerCount> proposers;
};

class Engine {
 public:
  Engine(const EngineConfig& config, EngineParts parts);
  ~Engine();  // stops the thread; running requests end with kAbort

  // Runs steps on a thread of its own until Stop. Tests call Step themselves instead.
  void Start();
  void Stop();
  // One step, or only the inbox when there is nothing to compute. Returns whether there is more to do.
  bool Step();

  // RESOURCE_EXHAUSTED when full, UNAVAILABLE when draining.
  absl::StatusOr<QueuePlace> Reserve();
  // ALREADY_EXISTS for a request_id in use. The ticket is the caller's choice, never used before.
  absl::Status Submit(QueuePlace place, GenerationRequest request);
  // Ends the request within one step; its samples finish with kAbort. False: it is not known (any more).
  bool Abort(const std::string& request_id);
  void Abort(Ticket ticket);
  // Refuses what is new from now on; what is accepted goes on.
  void Drain();

  EngineStats GetStats() const;
  // Tokens that prompt and output may have together: what the model and the K/V cache both hold.
  int32_t max_context_tokens() const;

 private:
  // state: see engine.cc
};

}  // namespace foretoken::verifier
