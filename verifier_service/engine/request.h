// SPDX-License-Identifier: Apache-2.0
// A generation request as the engine takes it, and what the engine says about it: plain data, already validated against
// the model. Between the rpc adapter (which makes and reads them) and the engine (which owns sequences).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/ops.h"
#include "verifier_service/engine/prediction.h"
#include "verifier_service/engine/step_report.h"

namespace foretoken::verifier {

// Names one accepted request inside this process; never reused.
using Ticket = uint64_t;

// A request may be put so many levels before, or behind, those that say nothing. Bounded, so that waiting can make up
// for it.
inline constexpr int32_t kMaxPriority = 100;

struct StopConditions {
  int32_t max_tokens = 1;  // prompt + max_tokens fit the context
  int32_t min_tokens = 0;
  std::vector<std::string> stop_strings;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_string = false;
};

struct OutputRequest {
  std::optional<int32_t> num_logprobs;         // unset: none; 0: the token's own only
  std::optional<int32_t> num_prompt_logprobs;  // the same for the prompt
  bool echo = false;
  bool skip_special_tokens = true;
};

enum class SpeculationMode {
  kAuto,  // the planner decides, step by step
  kOff,
  kAlways,  // every node that there is and that is allowed
};

struct SpeculationRequest {
  SpeculationMode mode = SpeculationMode::kAuto;
  std::vector<std::string> proposers;  // method names; empty: all
  std::optional<int32_t> max_tree_nodes;
  Prediction prediction;  // allowed whatever `proposers` says
  bool reports_steps = false;
};

struct GenerationRequest {
  Ticket ticket = 0;
  std::string request_id;
  std::string tenant;
  int32_t priority = 0;  // higher goes first, -kMaxPriority to kMaxPriority
  std::vector<int32_t> prompt;
  kernels::VerificationRule verification = kernels::VerificationRule::kKeyedDraw;
  kernels::SamplingParams sampling;  // of sample 0; sample_index counts up from it. The seed is the effective one.
  std::vector<kernels::LogitBias> logit_bias;
  std::vector<int32_t> allowed_token_ids;  // ascending, distinct; empty: all
  std::vector<int32_t> banned_token_ids;   // likewise; empty: none
  int32_t num_samples = 1;
  StopConditions stop;
  OutputRequest output;
  SpeculationRequest speculation;
  std::string traceparent;
};

enum class FinishReason {
  kStop,
  kLength,
  kAbort,
  kShutdown,  // the server ended it while draining
};
absl::string_view FinishReasonName(FinishReason reason);  // "stop", for metrics and logs

struct ProposerCount {
  std::string proposer;
  uint64_t num_proposed = 0;  // nodes verified
  uint64_t num_accepted = 0;
};

// What speculation did, of a sample or of many.
struct SpeculationCounts {
  // [k] steps in which k guesses were accepted, and k + 1 tokens committed
  std::vector<uint64_t> accepted_lengths;
  uint64_t num_proposed_nodes = 0;  // of merged trees
  uint64_t num_verified_nodes = 0;  // of those
  uint64_t num_accepted_prediction_tokens = 0;
  uint64_t num_rejected_prediction_tokens = 0;

  void AddAcceptedLength(size_t length, uint64_t num_steps);
  void Add(const SpeculationCounts& other);
};

struct SampleCompletion {
  FinishReason finish_reason = FinishReason::kStop;
  std::optional<std::string> matched_stop_string;
  std::optional<int32_t> matched_stop_token_id;
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;
  int32_t num_completion_tokens = 0;
  int32_t num_steps = 0;
  SpeculationMode mode = SpeculationMode::kOff;  // kOff also where nobody could guess
  SpeculationCounts speculation;
  std::vector<ProposerCount> proposers;
};

// The prompt given back, where echo or prompt log-probabilities asked for it.
struct PromptEcho {
  std::shared_ptr<const std::vector<int32_t>> token_ids;  // the request's own, shared with the engine
  std::vector<kernels::RowLogprobs> logprobs;             // of the tokens from the second on; empty where not asked for
};

// News of one sample. Text and tokens are deltas.
struct SampleOutput {
  Ticket ticket = 0;
  int32_t sample_index = 0;
  bool begins = false;  // the request has left the queue
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<uint32_t> text_ends;             // as token_ids: bytes of the sample's whole text released by then
  std::vector<bool> speculated;                // as token_ids
  std::vector<kernels::RowLogprobs> logprobs;  // as token_ids, where asked for
  std::optional<PromptEcho> prompt;
  std::vector<StepReport> steps;               // where asked for: of this step
  std::optional<SampleCompletion> completion;  // the sample's last output
  absl::Status error;                          // not OK: the request's last output, of any sample
};

}  // namespace foretoken::verifier
