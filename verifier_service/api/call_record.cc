// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/call_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/error_text.h"
#include "spdlog/spdlog.h"

namespace foretoken::verifier {
namespace {

constexpr size_t kMaxNameBytes = 256;  // the longest name in the log line

double SecondsSince(CallRecord::Clock::time_point then, CallRecord::Clock::time_point now) {
  return std::chrono::duration<double>(now - then).count();
}

std::string Milliseconds(const std::optional<double>& seconds) {
  return seconds ? absl::StrFormat("%.1f ms", *seconds * 1000) : "none";
}

}  // namespace

void CallRecord::Submit(const GenerationRequest& request) {
  is_submitted_ = true;
  request_id_ = request.request_id;
  tenant_ = request.tenant;
  num_prompt_tokens_ = static_cast<int64_t>(request.prompt.size());
  last_tokens_.resize(static_cast<size_t>(request.num_samples));
}

void CallRecord::LeaveQueue(Clock::time_point now) {
  if (queue_seconds_) return;
  queue_seconds_ = SecondsSince(arrival_, now);
  metrics_->ObserveQueueWait(*queue_seconds_);
}

void CallRecord::Observe(const SampleOutput& output) {
  const Clock::time_point now = Clock::now();
  if (output.begins) LeaveQueue(now);
  if (!output.token_ids.empty()) {
    std::optional<Clock::time_point>& last = last_tokens_[static_cast<size_t>(output.sample_index)];
    if (last) {
      metrics_->ObserveTokens(SecondsSince(*last, now), output.token_ids.size());
    } else {
      metrics_->ObserveFirstToken(SecondsSince(arrival_, now));
    }
    last = now;
    if (!first_token_seconds_) first_token_seconds_ = SecondsSince(arrival_, now);
    num_tokens_ += output.token_ids.size();
    num_accepted_ += static_cast<uint64_t>(std::count(output.speculated.begin(), output.speculated.end(), true));
  }
  if (!output.completion) return;
  num_steps_ += static_cast<uint64_t>(output.completion->num_steps);
  const FinishReason reason = output.completion->finish_reason;
  metrics_->CountSample(reason);
  absl::StrAppend(&finish_reasons_, finish_reasons_.empty() ? "" : ",", FinishReasonName(reason));
}

void CallRecord::End(const absl::Status& status) {
  metrics_->CountCall("Generate", status.code());
  if (status.ok()) metrics_->ObserveRequest(SecondsSince(arrival_, Clock::now()));
  if (!is_submitted_) return;
  LeaveQueue(Clock::now());
  if (spdlog::should_log(spdlog::level::debug)) spdlog::debug("{}", ToLine(status));
}

std::string CallRecord::ToLine(const absl::Status& status) const {
  return absl::StrCat("request ", base::Quoted(request_id_, kMaxNameBytes), " of tenant ",
                      base::Quoted(tenant_, kMaxNameBytes), ": ", absl::StatusCodeToString(status.code()), ", ",
                      num_prompt_tokens_, " prompt tokens, ", num_tokens_, " tokens, ", num_accepted_, " accepted, ",
                      num_steps_, " steps, finished [", finish_reasons_, "], queued ", Milliseconds(queue_seconds_),
                      ", first token after ", Milliseconds(first_token_seconds_), ", all after ",
                      Milliseconds(SecondsSince(arrival_, Clock::now())));
}

}  // namespace foretoken::verifier
