// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/call_metrics.h"

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/base/error_text.h"

namespace foretoken::verifier {
namespace {

const prometheus::Histogram::BucketBoundaries kFirstTokenSeconds = {.001, .005, .01, .02, .04, .06, .08, .1, .25,
                                                                    .5,   .75,  1,   2.5, 5,   7.5, 10,  30, 60};
const prometheus::Histogram::BucketBoundaries kQueueWaitSeconds = {.001, .0025, .005, .01, .025, .05, .1, .25,
                                                                   .5,   1,     2.5,  5,   10,   30,  60, 120};
const prometheus::Histogram::BucketBoundaries kRequestSeconds = {.01, .025, .05, .1, .25, .5,  1,   2.5,
                                                                 5,   10,   20,  40, 60,  120, 300, 600};
const prometheus::Histogram::BucketBoundaries kRefusalSeconds = {.0001, .00025, .0005, .001, .0025, .005,
                                                                 .01,   .025,   .05,   .1,   .25,   1};
// The bounds are finer than usual, because with speculation several tokens share a step of a few milliseconds. From
// 0.01 on they have all bounds of vLLM, whose boards select buckets.
const prometheus::Histogram::BucketBoundaries kInterTokenSeconds = {
    .0005, .001, .002, .003, .005, .0075, .01, .015, .02, .025, .03, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5};

const prometheus::Histogram::BucketBoundaries kTokenCounts = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                                              1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
const prometheus::Histogram::BucketBoundaries kSamples = {1, 2, 5, 10, 20};

constexpr char kError[] = "error";  // the reason of samples that the server could not finish

// The reasons for which a server refuses calls of Generate or ends them. A client's deadline and cancellation have
// none.
constexpr const char* kGenerateReasons[] = {
    "queue_full",        "queue_shed",        "tenant_queue_full", "grammars_full",     "deadline_too_short",
    "draining",          "output_not_read",   "device_failed",     "engine_stalled",    "invalid_field",
    "model_not_found",   "request_id_in_use", "format_too_costly", "no_token_to_draw",  "unauthenticated",
    "logits_not_finite", "numerics_differ",   "cancelled",         "deadline_exceeded", "unavailable",
    "internal"};

// Why samples that were not done have ended, if their call ended with this error.
absl::string_view ReasonOfEnd(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInvalidArgument:    // the request leaves no token to draw
    case absl::StatusCode::kResourceExhausted:  // the call met a limit, or its client did not read
      return FinishReasonName(FinishReason::kAbort);
    default:
      return base::ReasonOf(error) == "DRAINING" ? FinishReasonName(FinishReason::kShutdown) : kError;
  }
}

std::map<std::string, std::string> LabelsOf(const RpcName& rpc, const char* name, std::string value) {
  std::map<std::string, std::string> labels = {{"rpc", std::string(rpc.rpc)}, {name, std::move(value)}};
  if (!rpc.api.empty()) labels["api"] = std::string(rpc.api);
  return labels;
}

}  // namespace

CallMetrics::CallMetrics(telemetry::Metrics& metrics)
    : first_token_(metrics.AddTracedHistogram("foretoken_time_to_first_token_seconds",
                                              "From a request's arrival to its first token.", kFirstTokenSeconds)),
      inter_token_(metrics.AddTracedHistogram("foretoken_inter_token_seconds",
                                              "Time per token after the first; tokens of one step share its time.",
                                              kInterTokenSeconds)),
      output_gap_(metrics.AddTracedHistogram("foretoken_output_gap_seconds", "Time between two outputs of a sample.",
                                             kInterTokenSeconds)),
      queue_wait_(metrics.AddTracedHistogram("foretoken_queue_wait_seconds",
                                             "From a request's arrival until it begins to run, or ends before it ran.",
                                             kQueueWaitSeconds)),
      request_(metrics.AddTracedHistogram("foretoken_request_seconds",
                                          "From a request's arrival to its end, where that is OK.", kRequestSeconds)),
      refusal_(metrics.AddTracedHistogram("foretoken_refusal_seconds",
                                          "From a request's arrival to its error, if it never came to the engine.",
                                          kRefusalSeconds)),
      prompt_(metrics.AddTracedHistogram("foretoken_prompt_seconds",
                                         "From the end of the queue to a sample's first token.", kFirstTokenSeconds)),
      decode_(metrics.AddTracedHistogram("foretoken_decode_seconds", "From a sample's first token to its last one.",
                                         kRequestSeconds)),
      inference_(metrics.AddTracedHistogram("foretoken_inference_seconds",
                                            "From the end of the queue to a sample's last token.", kRequestSeconds)),
      output_token_(metrics.AddTracedHistogram("foretoken_output_token_seconds",
                                               "Mean time of a sample's tokens after the first.", kInterTokenSeconds)),
      prompt_tokens_(
          metrics.AddHistogram("foretoken_request_prompt_tokens", "Prompt tokens of a sample.", kTokenCounts)),
      uncached_prompt_tokens_(metrics.AddHistogram("foretoken_request_uncached_prompt_tokens",
                                                   "Prompt tokens of a sample that the prefix cache did not have.",
                                                   kTokenCounts)),
      output_tokens_(
          metrics.AddHistogram("foretoken_request_output_tokens", "Generated tokens of a sample.", kTokenCounts)),
      num_samples_(metrics.AddHistogram("foretoken_request_samples", "Samples that a request asks for.", kSamples)),
      max_tokens_(metrics.AddHistogram("foretoken_request_max_tokens",
                                       "The largest output that a request allows, in tokens.", kTokenCounts)),
      samples_(prometheus::BuildCounter()
                   .Name("foretoken_samples_finished_total")
                   .Help("Samples that have ended, by finish reason.")
                   .Register(metrics.registry())),
      calls_(prometheus::BuildCounter()
                 .Name("foretoken_rpc_calls_total")
                 .Help("Calls that have ended, by method and gRPC status.")
                 .Register(metrics.registry())),
      refusals_(prometheus::BuildCounter()
                    .Name("foretoken_refusals_total")
                    .Help("Calls that ended with an error, by method and by the error's reason.")
                    .Register(metrics.registry())) {
  for (const char* rpc : {"Generate", "Abort", "Tokenize", "Detokenize", "GetModelInfo"}) Announce({.rpc = rpc});
  // A rate needs a first value, so the reasons exist with count 0 before they happen.
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort, FinishReason::kShutdown}) {
    samples_.Add({{"reason", std::string(FinishReasonName(reason))}});
  }
  samples_.Add({{"reason", kError}});
}

void CallMetrics::ObserveTokens(double seconds, size_t num_tokens, absl::string_view trace_id) {
  output_gap_.Observe(seconds, trace_id);
  const double token_seconds = seconds / static_cast<double>(num_tokens);
  for (size_t i = 0; i < num_tokens; ++i) inter_token_.Observe(token_seconds, trace_id);
}

void CallMetrics::ObserveParameters(int32_t num_samples, int32_t max_tokens) {
  num_samples_.Observe(num_samples);
  max_tokens_.Observe(max_tokens);
}

void CallMetrics::ObserveSample(const SampleTimes& times, const SampleCompletion& completion,
                                absl::string_view trace_id) {
  samples_.Add({{"reason", std::string(FinishReasonName(completion.finish_reason))}}).Increment();
  const int32_t num_tokens = completion.num_completion_tokens;
  if (times.prompt.has_value()) {
    prompt_.Observe(*times.prompt, trace_id);
    decode_.Observe(*times.decode, trace_id);
    inference_.Observe(*times.prompt + *times.decode, trace_id);
    if (num_tokens > 1) output_token_.Observe(*times.decode / (num_tokens - 1), trace_id);
  }
  prompt_tokens_.Observe(completion.num_prompt_tokens);
  uncached_prompt_tokens_.Observe(completion.num_prompt_tokens - completion.num_cached_tokens);
  output_tokens_.Observe(num_tokens);
}

void CallMetrics::CountUnfinished(size_t num_samples, const absl::Status& error) {
  samples_.Add({{"reason", std::string(ReasonOfEnd(error))}}).Increment(static_cast<double>(num_samples));
}

void CallMetrics::Announce(const RpcName& rpc) {
  calls_.Add(LabelsOf(rpc, "code", absl::StatusCodeToString(absl::StatusCode::kOk)));
  if (rpc.rpc != "Generate") return;
  using Code = absl::StatusCode;
  for (const Code code : {Code::kCancelled, Code::kInvalidArgument, Code::kDeadlineExceeded, Code::kResourceExhausted,
                          Code::kInternal, Code::kUnavailable, Code::kUnauthenticated}) {
    calls_.Add(LabelsOf(rpc, "code", absl::StatusCodeToString(code)));
  }
  for (const char* reason : kGenerateReasons) refusals_.Add(LabelsOf(rpc, "reason", reason));
}

void CallMetrics::CountCall(const RpcName& rpc, const absl::Status& status) {
  calls_.Add(LabelsOf(rpc, "code", absl::StatusCodeToString(status.code()))).Increment();
  if (status.ok()) return;
  // Reasons are names in this program, so a client cannot make new ones.
  refusals_.Add(LabelsOf(rpc, "reason", absl::AsciiStrToLower(base::ReasonOf(status)))).Increment();
}

}  // namespace foretoken::verifier
