// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/outbox.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/utf8_bytes.h"
#include "kernels/check.h"
#include "verifier_service/api/step_report_conversion.h"

namespace foretoken::verifier {
namespace {

void CopyLogprob(const kernels::TokenLogprob& from, v1::TokenLogprob& to) {
  to.set_token_id(static_cast<uint32_t>(from.token_id));
  to.set_logprob(from.logprob);
}

void CopyLogprobs(const kernels::RowLogprobs& from, v1::PositionLogprobs& to) {
  CopyLogprob(from.token, *to.mutable_token());
  for (const kernels::TokenLogprob& top : from.top) CopyLogprob(top, *to.add_top());
}

v1::SpeculationMode ToProto(SpeculationMode mode) {
  switch (mode) {
    case SpeculationMode::kAuto:
      return v1::SPECULATION_MODE_AUTO;
    case SpeculationMode::kOff:
      return v1::SPECULATION_MODE_OFF;
    case SpeculationMode::kAlways:
      return v1::SPECULATION_MODE_ALWAYS;
  }
  return v1::SPECULATION_MODE_UNSPECIFIED;
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kAbort:
      return v1::FINISH_REASON_ABORT;
    case FinishReason::kShutdown:
      return v1::FINISH_REASON_SHUTDOWN;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

v1::Usage ToProto(const SampleCompletion& completion) {
  v1::Usage usage;
  usage.set_prompt_tokens(completion.num_prompt_tokens);
  usage.set_cached_tokens(completion.num_cached_tokens);
  usage.set_completion_tokens(completion.num_completion_tokens);
  usage.set_steps(completion.num_steps);
  const SpeculationCounts& counts = completion.speculation;
  usage.set_accepted_prediction_tokens(static_cast<uint32_t>(counts.num_accepted_prediction_tokens));
  usage.set_rejected_prediction_tokens(static_cast<uint32_t>(counts.num_rejected_prediction_tokens));
  usage.mutable_accepted_lengths()->Add(counts.accepted_lengths.begin(), counts.accepted_lengths.end());
  usage.set_proposed_nodes(counts.num_proposed_nodes);
  usage.set_verified_nodes(counts.num_verified_nodes);
  usage.set_speculation_mode(ToProto(completion.mode));
  for (const ProposerCount& count : completion.proposers) {
    v1::ProposerUsage& proposer = *usage.add_proposers();
    proposer.set_proposer(count.proposer);
    proposer.set_proposed_tokens(count.num_proposed);
    proposer.set_accepted_tokens(count.num_accepted);
  }
  return usage;
}

// The most bytes that a token and its log-probabilities take in a message.
size_t NumBytes(const kernels::RowLogprobs* logprobs) {
  constexpr size_t kTokenBytes = 12;    // id, end of text, speculated flag
  constexpr size_t kLogprobBytes = 16;  // id, number, tags and lengths
  return kTokenBytes + (logprobs == nullptr ? 0 : kLogprobBytes * (2 + logprobs->top.size()));
}

}  // namespace

Outbox::Outbox(OutboxOptions options)
    : options_(std::move(options)),
      pending_(options_.num_samples),
      num_text_bytes_(options_.num_samples),
      reports_(options_.num_samples) {}

v1::GenerateResponse Outbox::NewMessage(int32_t sample_index) const {
  v1::GenerateResponse message;
  message.set_request_id(options_.request_id);
  message.set_sample_index(static_cast<uint32_t>(sample_index));
  return message;
}

Outbox::Pending& Outbox::PendingWithRoom(int32_t sample_index, size_t num_bytes) {
  std::deque<Pending>& pending = pending_[sample_index];
  if (pending.empty() || pending.back().num_bytes + num_bytes > kMaxDeltaBytes) {
    pending.push_back({.message = NewMessage(sample_index)});
  }
  pending.back().num_bytes += num_bytes;
  num_bytes_ += num_bytes;
  return pending.back();
}

// Appends the delta to the unsent messages, token by token. Each token takes the text that it released.
void Outbox::AddDelta(const SampleOutput& output) {
  const int32_t sample = output.sample_index;
  const absl::string_view text = output.text;
  const size_t num_before = std::exchange(num_text_bytes_[sample], num_text_bytes_[sample] + text.size());
  size_t text_begin = 0;
  for (size_t i = 0; i < output.token_ids.size(); ++i) {
    FT_CHECK(output.text_ends[i] >= num_before + text_begin && output.text_ends[i] <= num_before + text.size());
    const absl::string_view released = text.substr(text_begin, output.text_ends[i] - num_before - text_begin);
    const kernels::RowLogprobs* const logprobs = output.logprobs.empty() ? nullptr : &output.logprobs[i];
    v1::GenerateResponse& message = PendingWithRoom(sample, released.size() + NumBytes(logprobs)).message;
    absl::StrAppend(message.mutable_text(), released);
    message.add_token_ids(static_cast<uint32_t>(output.token_ids[i]));
    message.add_text_ends(output.text_ends[i]);
    message.add_speculated(output.speculated[i]);
    if (logprobs != nullptr) CopyLogprobs(*logprobs, *message.add_logprobs());
    text_begin += released.size();
  }
  const absl::string_view rest = text.substr(text_begin);  // text that was held back and that no token released
  if (!rest.empty()) absl::StrAppend(PendingWithRoom(sample, rest.size()).message.mutable_text(), rest);
}

void Outbox::AddReport(const StepReport& report, WaitingReports& waiting) {
  v1::StepReport& added = waiting.reports.emplace_back(WaitingReport{.report = ToProto(report)}).report;
  waiting.reports.back().num_bytes = added.ByteSizeLong();
  waiting.num_bytes += waiting.reports.back().num_bytes;
  num_bytes_ += waiting.reports.back().num_bytes;
  while (waiting.num_bytes > kMaxReportBytes) {
    waiting.num_bytes -= waiting.reports.front().num_bytes;
    num_bytes_ -= waiting.reports.front().num_bytes;
    waiting.reports.pop_front();
    ++waiting.num_lost;
  }
}

void Outbox::TakeReports(WaitingReports& waiting, v1::GenerateResponse& message) {
  if (waiting.reports.empty()) return;
  waiting.reports.front().report.set_num_lost(waiting.num_lost);
  for (WaitingReport& report : waiting.reports) *message.add_steps() = std::move(report.report);
  num_bytes_ -= waiting.num_bytes;
  waiting = {};
}

v1::GenerateResponse Outbox::TakePrompt() {
  WaitingPrompt& waiting = *prompt_;
  const PromptEcho& echo = waiting.prompt;
  v1::GenerateResponse message = NewMessage(waiting.sample_index);
  v1::PromptOutput& prompt = *message.mutable_prompt();
  size_t num_bytes = 0;
  for (size_t& i = waiting.num_tokens_taken; i < echo.token_ids->size(); ++i) {
    const bool has_logprobs = i > 0 && !echo.logprobs.empty();
    const kernels::RowLogprobs* const logprobs = has_logprobs ? &echo.logprobs[i - 1] : nullptr;
    if (num_bytes + NumBytes(logprobs) > kMaxDeltaBytes) break;
    num_bytes += NumBytes(logprobs);
    prompt.add_token_ids(static_cast<uint32_t>((*echo.token_ids)[i]));
    if (has_logprobs) CopyLogprobs(*logprobs, *prompt.add_logprobs());
  }
  const absl::string_view rest = absl::string_view(options_.prompt_text).substr(waiting.num_text_bytes_taken);
  const absl::string_view text = base::WholeCharacters(rest, kMaxDeltaBytes - num_bytes);
  prompt.set_text(std::string(text));
  waiting.num_text_bytes_taken += text.size();
  prompt.set_awaiting_more(waiting.num_tokens_taken < echo.token_ids->size() || text.size() < rest.size());
  if (!prompt.awaiting_more()) {
    num_bytes_ -= waiting.num_bytes;
    prompt_.reset();
  }
  return message;
}

void Outbox::AddPrompt(int32_t sample_index, PromptEcho prompt) {
  FT_CHECK(!prompt_.has_value());
  size_t num_bytes = options_.prompt_text.size() + NumBytes(nullptr) * prompt.token_ids->size();
  for (const kernels::RowLogprobs& logprobs : prompt.logprobs) num_bytes += NumBytes(&logprobs);
  num_bytes_ += num_bytes;
  prompt_ = WaitingPrompt{.sample_index = sample_index, .prompt = std::move(prompt), .num_bytes = num_bytes};
}

void Outbox::AddCompletion(const SampleCompletion& from, Pending& pending) {
  v1::Completion& completion = *pending.message.mutable_completion();
  completion.set_finish_reason(ToProto(from.finish_reason));
  if (from.matched_stop_string) completion.set_matched_stop_string(*from.matched_stop_string);
  if (from.matched_stop_token_id) completion.set_matched_stop_token_id(*from.matched_stop_token_id);
  *completion.mutable_usage() = ToProto(from);
  completion.set_seed(options_.seed);
  completion.set_numerics_fingerprint(options_.numerics_fingerprint);
  const size_t num_bytes = completion.ByteSizeLong();
  pending.num_bytes += num_bytes;
  num_bytes_ += num_bytes;
  ++num_completed_;
}

void Outbox::Add(SampleOutput output) {
  if (!error_.ok() || num_completed_ == options_.num_samples) return;
  FT_CHECK(output.sample_index >= 0 && output.sample_index < options_.num_samples);
  if (!output.error.ok()) {
    error_ = std::move(output.error);
    return;
  }
  if (!output.token_ids.empty() || output.completion) has_output_ = true;
  if (output.prompt) AddPrompt(output.sample_index, *std::move(output.prompt));
  for (const StepReport& report : output.steps) AddReport(report, reports_[output.sample_index]);
  AddDelta(output);
  if (output.completion) AddCompletion(*output.completion, PendingWithRoom(output.sample_index, 0));
}

std::optional<v1::GenerateResponse> Outbox::Take() {
  if (prompt_.has_value()) return TakePrompt();
  for (int32_t i = 0; i < options_.num_samples; ++i) {
    const int32_t sample = std::exchange(next_sample_, (next_sample_ + 1) % options_.num_samples);
    std::deque<Pending>& pending = pending_[sample];
    if (pending.empty() && reports_[sample].reports.empty()) continue;
    v1::GenerateResponse message = NewMessage(sample);
    if (!pending.empty()) {
      message = std::move(pending.front().message);
      num_bytes_ -= pending.front().num_bytes;
      pending.pop_front();
    }
    TakeReports(reports_[sample], message);
    return message;
  }
  return std::nullopt;
}

std::optional<absl::Status> Outbox::Result() const {
  if (error_.ok() && num_completed_ < options_.num_samples) return std::nullopt;
  if (prompt_.has_value()) return std::nullopt;
  for (int32_t sample = 0; sample < options_.num_samples; ++sample) {
    if (!pending_[sample].empty() || !reports_[sample].reports.empty()) return std::nullopt;
  }
  return error_;
}

}  // namespace foretoken::verifier
