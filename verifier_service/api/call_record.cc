// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/call_record.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/rpc/status.h"
#include "common/telemetry/logging.h"
#include "spdlog/spdlog.h"

namespace foretoken::verifier {
namespace {

constexpr double kMsPerSecond = 1000;

double SecondsSince(CallRecord::Clock::time_point then, CallRecord::Clock::time_point now) {
  return std::chrono::duration<double>(now - then).count();
}

}  // namespace

CallRecord::CallRecord(CallMetrics* metrics, CallTrace trace, const RpcName& rpc)
    : metrics_(metrics),
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
  samples_.resize(static_cast<size_t>(request.num_samples));
  metrics_->ObserveParameters(request);
}

void CallRecord::LeaveQueue(Clock::time_point now) {
  if (queue_seconds_) return;
  queue_seconds_ = SecondsSince(arrival_, now);
  metrics_->ObserveQueueWait(*queue_seconds_, recorded_trace_id_);
}

void CallRecord::Observe(const SampleOutput& output) {
  trace_.Observe(output);
  const Clock::time_point now = Clock::now();
  if (output.began) LeaveQueue(now);
  if (!output.token_ids.empty()) {
    Sample& sample = samples_[static_cast<size_t>(output.sample_index)];
    if (sample.last_tokens) {
      metrics_->ObserveTokens(SecondsSince(*sample.last_tokens, now), output.token_ids.size(), recorded_trace_id_);
    } else {
      metrics_->ObserveFirstToken(SecondsSince(arrival_, now), recorded_trace_id_);
      sample.first_tokens = now;
    }
    sample.last_tokens = now;
    if (!first_token_seconds_) first_token_seconds_ = SecondsSince(arrival_, now);
    num_tokens_ += output.token_ids.size();
    num_accepted_ += static_cast<uint64_t>(std::count(output.speculated.begin(), output.speculated.end(), true));
  }
  if (!output.completion) return;
  num_steps_ += static_cast<uint64_t>(output.completion->num_steps);
  Sample& ended = samples_[static_cast<size_t>(output.sample_index)];
  ended.has_ended = true;
  CountSample(ended, *output.completion);
  absl::StrAppend(&finish_reasons_, finish_reasons_.empty() ? "" : ",",
                  FinishReasonName(output.completion->finish_reason));
}

void CallRecord::CountSample(const Sample& sample, const SampleCompletion& completion) {
  SampleTimes times;
  if (sample.first_tokens) {
    times.prompt = SecondsSince(arrival_, *sample.first_tokens) - queue_seconds_.value_or(0);
    times.decode = SecondsSince(*sample.first_tokens, *sample.last_tokens);
  }
  metrics_->ObserveSample(times, completion, recorded_trace_id_);
}

void CallRecord::End(const absl::Status& status) {
  metrics_->CountCall(rpc_, status);
  if (status.ok()) metrics_->ObserveRequest(SecondsSince(arrival_, Clock::now()), recorded_trace_id_);
  if (is_submitted_) {
    LeaveQueue(Clock::now());
    const auto num_unfinished = std::ranges::count(samples_, false, &Sample::has_ended);
    if (num_unfinished > 0) metrics_->CountUnfinished(static_cast<size_t>(num_unfinished), status);
    if (spdlog::should_log(spdlog::level::debug)) LogEnd(status);
  } else if (!status.ok()) {
    metrics_->ObserveRefusal(SecondsSince(arrival_, Clock::now()), recorded_trace_id_);
    if (spdlog::should_log(spdlog::level::debug)) LogRefusal(status);
  }
  trace_.End(status);
}

std::string CallRecord::ErrorForLog(const absl::Status& status) {
  if (!base::IsConfidential(status)) return std::string(status.message());
  return absl::StrCat(rpc::FieldOf(status), ": the client has the message, which quotes its request");
}

void CallRecord::LogRefusal(const absl::Status& status) const {
  telemetry::LogEvent(spdlog::level::debug, "request refused",
                      {{"request_id", request_id_},
                       {"trace_id", trace_id_},
                       {"tenant", tenant_},
                       {"code", absl::StatusCodeToString(status.code())},
                       {"reason", absl::AsciiStrToLower(base::ReasonOf(status))},
                       {"error", ErrorForLog(status)},
                       {"total_ms", kMsPerSecond * SecondsSince(arrival_, Clock::now())}});
}

void CallRecord::LogEnd(const absl::Status& status) const {
  telemetry::LogEvent(spdlog::level::debug, "request ended",
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
                       {"total_ms", kMsPerSecond * SecondsSince(arrival_, Clock::now())}});
}

}  // namespace foretoken::verifier
