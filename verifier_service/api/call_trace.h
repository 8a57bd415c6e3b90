// SPDX-License-Identifier: Apache-2.0
// The spans of one Generate call:
//
//   foretoken.v1.GenerationService/Generate   from the call's arrival to its status
//     queue                                   until the first sample runs
//     prompt                                  of one sample: until its first token
//       step                                  a pass over the model that computed a part of the prompt
//     decode                                  of one sample: from its first token to its last one
//       step                                  a pass over the model that drew tokens
//         proposal                            a tree of guesses, from the verifier's question to its arrival
//
// Steps and proposals are there only if the call traces steps and the outputs carry step reports: a client that asks
// for reports does not get spans of them. The steps of a decode follow one another, so their times add up to its time,
// unless the sample was preempted.
//
//   CallTrace trace(tracer, {.method = "foretoken.v1.GenerationService/Generate", .caller = caller});
//   trace.Name("mine", "team");             // for a call that is refused
//   trace.Submit(request, "llama");
//   trace.Withdraw();                       // only if the engine then refuses the request
//   trace.Observe(output);                  // every output of the engine
//   trace.End(absl::OkStatus());            // once
//
// The texts of a client that the call's span holds are cut, because they come unchecked with the call's metadata.
//
// Threads: one at a time.
// Source of the attributes' names: OpenTelemetry's semantic conventions for RPC and for generative AI; names that begin
// with "foretoken." are explained in docs/operating.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tracing/span_clock.h"
#include "common/tracing/tracer.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

// The identity of a traced call.
struct TracedCall {
  std::string method;                           // PACKAGE.SERVICE/METHOD
  std::optional<tracing::TraceContext> caller;  // from the call's metadata
  std::string authority = {};                   // the server as the client named it: HOST:PORT, or HOST
  std::string peer = {};                        // as gRPC names it: ipv4:HOST:PORT
  std::string model = {};                       // that the server serves
  bool traces_steps = false;                    // the outputs' step reports become spans
};

class CallTrace {
 public:
  // The call's span holds at most this many accepted lengths; later steps are only counted.
  static constexpr size_t kMaxAcceptedLengths = 256;
  static constexpr size_t kMaxNameBytes = 256;  // a request with a longer name is refused

  // The tracer outlives the trace.
  CallTrace(const tracing::Tracer& tracer, TracedCall call);

  bool is_recorded() const { return tracer_.IsRecorded(call_); }
  // The context of the call's span, for the services behind this one and for logs.
  const tracing::TraceContext& context() const { return call_.context; }

  // What the call says of the request so far, unchecked. Later names replace earlier ones.
  void Name(const std::string& request_id, const std::string& tenant);
  void Submit(const GenerationRequest& request, absl::string_view model);
  void Withdraw() { samples_.clear(); }
  void Observe(const SampleOutput& output);
  void End(const absl::Status& status);

 private:
  struct Sample {
    std::optional<tracing::Span> phase;  // prompt or decode
    bool has_token = false;              // the phase is decode
    absl::Time last_output;              // with tokens, once there is one
  };

  void EndQueue(absl::Time end);
  void BeginPhase(Sample& sample, int32_t sample_index, std::string name, absl::Time begin);
  void EndPhase(Sample& sample, absl::Time end);
  void ObserveRun(const SampleOutput& output, Sample& sample);
  void ObserveStep(const StepReport& report, const Sample& sample);
  void Complete(const SampleCompletion& completion, Sample& sample);
  void AddUsage();

  const tracing::Tracer& tracer_;
  const tracing::SpanClock clock_;
  const bool traces_steps_;
  tracing::Span call_;
  std::optional<tracing::Span> queue_;
  std::string operation_ = "generate_content";  // the convention's most general one, until the request is known
  std::string request_id_, tenant_;
  std::vector<Sample> samples_;  // empty: the engine does not have the request
  absl::Time queue_end_;
  bool is_streamed_ = true;
  std::optional<absl::Time> first_token_;
  std::vector<std::string> finish_reasons_;
  int64_t num_prompt_tokens_ = 0, num_output_tokens_ = 0;
  int64_t num_steps_ = 0, num_accepted_ = 0;  // steps that drew tokens, guesses that became tokens
  // Known of the samples that have completed.
  int64_t num_cached_tokens_ = 0, num_proposed_nodes_ = 0, num_verified_nodes_ = 0;
  std::vector<int64_t> accepted_lengths_;  // of the decodes' steps
};

}  // namespace foretoken::verifier
