// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/call_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/telemetry/logging.h"
#include "common/tracing/rpc_span.h"
#include "spdlog/spdlog.h"

namespace foretoken::verifier {
namespace {

constexpr double kMsPerSecond = 1000;

// Clients miss deadlines and servers drain all day. Every other fault of the server is news to its operator.
bool IsBroken(const absl::Status& status) {
  return tracing::IsServersFault(status.code()) && !absl::IsDeadlineExceeded(status) &&
         base::ReasonOf(status) != "DRAINING";
}

std::string ErrorForLog(const absl::Status& status) {
  if (!base::IsConfidential(status)) return std::string(status.message());
  return absl::StrCat(base::FieldOf(status), ": the client has the message, which quotes its request");
}

}  // namespace

CallRecord::CallRecord(const CallRecordSinks& sinks, CallTrace trace, const RpcName& rpc)
    : metrics_(sinks.metrics),
      fault_lines_(sinks.fault_lines),
      trace_(std::move(trace)),
      rpc_(rpc),
      trace_id_(trace_.context().is_set() ? tracing::FormatTraceId(trace_.context().trace_id) : ""),
      recorded_trace_id_(trace_.is_recorded() ? trace_id_ : "") {}

void CallRecord::Name(const std::string& request_id, const std::string& tenant) {
  trace_.Name(request_id, tenant);
  request_id_ = request_id;
  tenant_ = tenant;
}

void CallRecord::Submit(const GenerationRequest& request, absl::string_view model) {
  trace_.Submit(request, model);
  is_submitted_ = true;
  request_id_ = request.request_id;
  tenant_ = request.tenant;
  num_prompt_tokens_ = static_cast<int64_t>(request.prompt.size());
  max_tokens_ = request.stop.max_tokens;
  samples_.resize(static_cast<size_t>(request.num_samples));
}

void CallRecord::Withdraw() {
  trace_.Withdraw();
  is_submitted_ = false;
}

void CallRecord::LeaveQueue(absl::Time time) {
  if (queue_seconds_) return;
  queue_seconds_ = std::max(0.0, SecondsUntil(time));  // a step that has begun may still take the request
  metrics_->ObserveQueueWait(*queue_seconds_, recorded_trace_id_);
}

void CallRecord::Observe(const SampleOutput& output) {
  trace_.Observe(output);
  if (output.began) {
    LeaveQueue(*output.began);
    samples_[static_cast<size_t>(output.sample_index)].began = output.began;
  }
  if (!output.token_ids.empty()) ObserveTokens(output);
  if (!output.completion) return;
  Sample& ended = samples_[static_cast<size_t>(output.sample_index)];
  ended.has_ended = true;
  CountSample(ended, *output.completion);
  absl::StrAppend(&finish_reasons_, finish_reasons_.empty() ? "" : ",",
                  FinishReasonName(output.completion->finish_reason));
}

// All tokens of an output come from one step.
void CallRecord::ObserveTokens(const SampleOutput& output) {
  Sample& sample = samples_[static_cast<size_t>(output.sample_index)];
  if (sample.last_tokens) {
    metrics_->ObserveTokens(absl::ToDoubleSeconds(output.time - *sample.last_tokens), output.token_ids.size(),
                            recorded_trace_id_);
  } else {
    metrics_->ObserveFirstToken(SecondsUntil(output.time), recorded_trace_id_);
    sample.first_tokens = output.time;
  }
  sample.last_tokens = output.time;
  if (!first_token_seconds_) first_token_seconds_ = SecondsUntil(output.time);
  ++num_steps_;
  num_tokens_ += output.token_ids.size();
  num_accepted_ += static_cast<uint64_t>(std::ranges::count(output.speculated, true));
}

void CallRecord::CountSample(const Sample& sample, const SampleCompletion& completion) {
  SampleTimes times;
  if (sample.first_tokens) {
    times.prompt = absl::ToDoubleSeconds(*sample.first_tokens - sample.began.value_or(*sample.first_tokens));
    times.decode = absl::ToDoubleSeconds(*sample.last_tokens - *sample.first_tokens);
  }
  metrics_->ObserveSample(times, completion, recorded_trace_id_);
}

void CallRecord::End(const absl::Status& status) {
  const absl::Time now = SteadyNow();
  metrics_->CountCall(rpc_, status);
  if (status.ok()) metrics_->ObserveRequest(SecondsUntil(now), recorded_trace_id_);
  if (is_submitted_) {
    LeaveQueue(now);
    metrics_->ObserveParameters(static_cast<int32_t>(samples_.size()), max_tokens_);
    const auto num_unfinished = std::ranges::count(samples_, false, &Sample::has_ended);
    if (num_unfinished > 0) metrics_->CountUnfinished(static_cast<size_t>(num_unfinished), status);
  } else if (!status.ok()) {
    metrics_->ObserveRefusal(SecondsUntil(now), recorded_trace_id_);
  }
  Log(status);
  trace_.End(status);
}

void CallRecord::Log(const absl::Status& status) const {
  std::string event = is_submitted_ ? "request ended" : "request refused";
  spdlog::level::level_enum level = spdlog::level::debug;
  if (IsBroken(status)) {
    if (const auto line = fault_lines_->Pass(base::ReasonOf(status), event, SteadyNow())) {
      event = *line;
      level = spdlog::level::warn;
    }
  }
  if (!spdlog::should_log(level)) return;
  if (is_submitted_) {
    LogEnd(level, event, status);
  } else {
    LogRefusal(level, event, status);
  }
}

void CallRecord::LogRefusal(spdlog::level::level_enum level, absl::string_view event,
                            const absl::Status& status) const {
  telemetry::LogEvent(level, event,
                      {{"request_id", request_id_},
                       {"trace_id", trace_id_},
                       {"tenant", tenant_},
                       {"code", absl::StatusCodeToString(status.code())},
                       {"reason", absl::AsciiStrToLower(base::ReasonOf(status))},
                       {"error", ErrorForLog(status)},
                       {"total_ms", kMsPerSecond * SecondsUntil(SteadyNow())}});
}

void CallRecord::LogEnd(spdlog::level::level_enum level, absl::string_view event, const absl::Status& status) const {
  telemetry::LogEvent(level, event,
                      {{"request_id", request_id_},
                       {"trace_id", trace_id_},
                       {"tenant", tenant_},
                       {"code", absl::StatusCodeToString(status.code())},
                       {"error", ErrorForLog(status)},
                       {"prompt_tokens", num_prompt_tokens_},
                       {"tokens", static_cast<int64_t>(num_tokens_)},
                       {"accepted", static_cast<int64_t>(num_accepted_)},
                       {"steps", static_cast<int64_t>(num_steps_)},
                       {"finish_reasons", finish_reasons_},
                       {"queue_ms", kMsPerSecond * queue_seconds_.value_or(0)},
                       {"first_token_ms", kMsPerSecond * first_token_seconds_.value_or(-1)},
                       {"total_ms", kMsPerSecond * SecondsUntil(SteadyNow())}});
}

}  // namespace foretoken::verifier
