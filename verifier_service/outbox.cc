// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/outbox.h"

#include <utility>

#include "kernels/check.h"
#include "verifier_service/step_report_conversion.h"

namespace foretoken::verifier {
namespace {

constexpr size_t kMaxMessageBytes = size_t{1} << 20;

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

// What the delta takes in a message, from above.
size_t NumBytes(const SampleOutput& output) {
  constexpr size_t kTokenBytes = 12;    // id, end of text, whether speculated
  constexpr size_t kLogprobBytes = 16;  // id, number, tags and lengths
  size_t num_bytes = output.text.size() + kTokenBytes * output.token_ids.size();
  for (const kernels::RowLogprobs& row : output.logprobs) num_bytes += kLogprobBytes * (2 + row.top.size());
  return num_bytes;
}

}  // namespace

Outbox::Outbox(OutboxOptions options)
    : options_(std::move(options)), pending_(options_.num_samples), reports_(options_.num_samples) {}

v1::GenerateResponse Outbox::NewMessage(int32_t sample_index) const {
  v1::GenerateResponse message;
  message.set_request_id(options_.request_id);
  message.set_sample_index(static_cast<uint32_t>(sample_index));
  return message;
}

Outbox::Pending& Outbox::PendingWithRoom(const SampleOutput& output) {
  std::deque<Pending>& pending = pending_[output.sample_index];
  const size_t num_bytes = NumBytes(output);
  if (pending.empty() || pending.back().num_bytes + num_bytes > kMaxMessageBytes) {
    pending.push_back({.message = NewMessage(output.sample_index)});
  }
  pending.back().num_bytes += num_bytes;
  return pending.back();
}

// Appends the delta to what was not sent yet.
void Outbox::MergeDelta(const SampleOutput& output, Pending& pending) {
  v1::GenerateResponse& message = pending.message;
  message.mutable_text()->append(output.text);
  for (const int32_t id : output.token_ids) message.add_token_ids(static_cast<uint32_t>(id));
  for (const uint32_t end : output.text_ends) message.add_text_ends(end);
  for (const bool speculated : output.speculated) message.add_speculated(speculated);
  for (const kernels::RowLogprobs& logprobs : output.logprobs) CopyLogprobs(logprobs, *message.add_logprobs());
}

void Outbox::AddReport(const StepReport& report, WaitingReports& waiting) {
  v1::StepReport& added = waiting.reports.emplace_back(WaitingReport{.report = ToProto(report)}).report;
  waiting.reports.back().num_bytes = added.ByteSizeLong();
  waiting.num_bytes += waiting.reports.back().num_bytes;
  while (waiting.num_bytes > kMaxReportBytes) {
    waiting.num_bytes -= waiting.reports.front().num_bytes;
    waiting.reports.pop_front();
    ++waiting.num_lost;
  }
}

void Outbox::TakeReports(WaitingReports& waiting, v1::GenerateResponse& message) {
  if (waiting.reports.empty()) return;
  waiting.reports.front().report.set_num_lost(waiting.num_lost);
  for (WaitingReport& report : waiting.reports) *message.add_steps() = std::move(report.report);
  waiting = {};
}

void Outbox::AddPrompt(const SampleOutput& output) {
  v1::PromptOutput& prompt = *prompts_.emplace_back(NewMessage(output.sample_index)).mutable_prompt();
  for (const int32_t id : output.prompt->token_ids) prompt.add_token_ids(static_cast<uint32_t>(id));
  for (const kernels::RowLogprobs& logprobs : output.prompt->logprobs) CopyLogprobs(logprobs, *prompt.add_logprobs());
  prompt.set_text(options_.prompt_text);
}

void Outbox::AddCompletion(const SampleCompletion& from, v1::GenerateResponse& message) {
  v1::Completion& completion = *message.mutable_completion();
  completion.set_finish_reason(ToProto(from.finish_reason));
  if (from.matched_stop_string) completion.set_matched_stop_string(*from.matched_stop_string);
  if (from.matched_stop_token_id) completion.set_matched_stop_token_id(*from.matched_stop_token_id);
  *completion.mutable_usage() = ToProto(from);
  completion.set_seed(options_.seed);
  completion.set_numerics_fingerprint(options_.numerics_fingerprint);
  ++num_completed_;
}

void Outbox::Add(SampleOutput output) {
  if (!error_.ok() || num_completed_ == options_.num_samples) return;
  FT_CHECK(output.sample_index >= 0 && output.sample_index < options_.num_samples);
  if (!output.error.ok()) {
    error_ = std::move(output.error);
    return;
  }
  if (output.prompt) AddPrompt(output);
  for (const StepReport& report : output.steps) AddReport(report, reports_[output.sample_index]);
  if (output.text.empty() && output.token_ids.empty() && !output.completion) return;
  Pending& pending = PendingWithRoom(output);
  MergeDelta(output, pending);
  if (output.completion) AddCompletion(*output.completion, pending.message);
}

std::optional<v1::GenerateResponse> Outbox::Take() {
  if (!prompts_.empty()) {
    v1::GenerateResponse message = std::move(prompts_.front());
    prompts_.pop_front();
    return message;
  }
  for (int32_t i = 0; i < options_.num_samples; ++i) {
    const int32_t sample = std::exchange(next_sample_, (next_sample_ + 1) % options_.num_samples);
    std::deque<Pending>& pending = pending_[sample];
    if (pending.empty() && reports_[sample].reports.empty()) continue;
    v1::GenerateResponse message = NewMessage(sample);
    if (!pending.empty()) {
      message = std::move(pending.front().message);
      pending.pop_front();
    }
    TakeReports(reports_[sample], message);
    return message;
  }
  return std::nullopt;
}

std::optional<absl::Status> Outbox::Result() const {
  if (error_.ok() && num_completed_ < options_.num_samples) return std::nullopt;
  if (!prompts_.empty()) return std::nullopt;
  for (int32_t sample = 0; sample < options_.num_samples; ++sample) {
    if (!pending_[sample].empty() || !reports_[sample].reports.empty()) return std::nullopt;
  }
  return error_;
}

}  // namespace foretoken::verifier
