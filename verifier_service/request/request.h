// SPDX-License-Identifier: Apache-2.0
// A generation request and its outputs, as the client API and the engine exchange them. Plain data, already validated
// against the model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/ops.h"
#include "verifier_service/grammar/grammar.h"
#include "verifier_service/request/prediction.h"
#include "verifier_service/request/step_report.h"

namespace foretoken::verifier {

// Names one accepted request inside this process. Never reused.
using Ticket = uint64_t;

// A request's priority lies between -kMaxPriority and kMaxPriority. The bound ensures that waiting can outweigh it.
inline constexpr int32_t kMaxPriority = 100;

struct StopConditions {
  int32_t max_tokens = 1;  // prompt and max_tokens fit the context together
  int32_t min_tokens = 0;
  std::vector<std::string> stop_strings;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_string = false;
};

struct OutputRequest {
  std::optional<int32_t> num_logprobs;         // unset: none; 0: only the token's own
  std::optional<int32_t> num_prompt_logprobs;  // the same for the prompt
  bool echo = false;
  bool skip_special_tokens = true;
};

enum class SpeculationMode {
  kAuto,  // the planner decides in every step
  kOff,
  kAlways,  // every step verifies as many nodes as allowed
};

struct SpeculationRequest {
  SpeculationMode mode = SpeculationMode::kAuto;
  std::vector<std::string> proposers;  // method names; empty: all
  std::optional<int32_t> max_tree_nodes;
  Prediction prediction;       // used with any `proposers`
  bool reports_steps = false;  // the outputs carry step reports
};

// What is known of a request before it is parsed.
struct RequestArrival {
  int64_t num_bytes = 0;                         // of its message
  int64_t num_samples = 1;                       // may be wrong, as the tenant may be
  absl::Time deadline = absl::InfiniteFuture();  // on the engine's clock
  absl::string_view tenant;                      // may be wrong; the parsed request decides
};

struct GenerationRequest {
  Ticket ticket = 0;
  std::string request_id;
  std::string tenant;
  int32_t priority = 0;                          // in its tenant; higher goes first, -kMaxPriority to kMaxPriority
  absl::Time deadline = absl::InfiniteFuture();  // on the engine's clock; the client wants nothing after it
  std::vector<int32_t> prompt;
  bool is_chat = false;     // the prompt is a conversation
  bool is_json = false;     // the response format makes the output JSON
  bool is_streamed = true;  // the client gets output as it comes
  kernels::VerificationRule verification = kernels::VerificationRule::kKeyedDraw;
  kernels::SamplingParams sampling;  // of sample 0; sample_index counts up from it. The seed is always set.
  bool has_clients_seed = false;     // false: the server drew the seed
  std::vector<kernels::LogitBias> logit_bias;
  std::vector<int32_t> allowed_token_ids;  // ascending, distinct; empty: all
  std::vector<int32_t> banned_token_ids;   // ascending, distinct; empty: none
  int32_t num_samples = 1;
  std::shared_ptr<const Grammar> grammar;  // the form of the output; null: any text
  StopConditions stop;
  OutputRequest output;
  SpeculationRequest speculation;
  std::string traceparent, tracestate;  // of the call's span, as in the headers; empty: no trace
};

enum class FinishReason {
  kStop,
  kLength,
  kAbort,
  kShutdown,  // the server ended the sample while draining
};
absl::string_view FinishReasonName(FinishReason reason);  // "stop", for metrics and logs

struct ProposerCount {
  std::string proposer;
  uint64_t num_proposed = 0;  // nodes verified
  uint64_t num_accepted = 0;
};

// Counts of speculation, for one sample or for many.
struct SpeculationCounts {
  // [k] steps that accepted k guesses and committed k + 1 tokens
  std::vector<uint64_t> accepted_lengths;
  uint64_t num_proposed_nodes = 0;  // of merged trees
  uint64_t num_verified_nodes = 0;  // proposed nodes that got a row
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
  SpeculationMode mode = SpeculationMode::kOff;  // kOff also if no proposer was allowed
  SpeculationCounts speculation;
  std::vector<ProposerCount> proposers;
};

// The prompt as output, for requests with echo or prompt log-probabilities.
struct PromptEcho {
  std::shared_ptr<const std::vector<int32_t>> token_ids;  // shared with the request
  std::vector<kernels::RowLogprobs> logprobs;             // from the second token on; empty if not requested
};

// The new output of one sample. Text and tokens are deltas.
struct SampleOutput {
  Ticket ticket = 0;
  int32_t sample_index = 0;
  absl::Time time;                  // the end of the step, on the engine's clock
  std::optional<absl::Time> began;  // set once: when the sample began to run
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<uint32_t> text_ends;             // as token_ids: bytes of the sample's text up to this token
  std::vector<bool> speculated;                // as token_ids
  std::vector<kernels::RowLogprobs> logprobs;  // as token_ids, if requested
  std::optional<PromptEcho> prompt;
  std::vector<StepReport> steps;               // of this step, if requested
  std::optional<SampleCompletion> completion;  // the sample's last output
  absl::Status error;                          // not OK: the last output of the whole request
};

}  // namespace foretoken::verifier
