// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/call_trace.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/shortest_double.h"
#include "common/tracing/rpc_span.h"

namespace foretoken::verifier {
namespace {

using tracing::Attributes;

absl::string_view ModeName(SpeculationMode mode) {
  switch (mode) {
    case SpeculationMode::kAuto:
      return "auto";
    case SpeculationMode::kOff:
      return "off";
    case SpeculationMode::kAlways:
      return "always";
  }
  return "unknown";
}

Attributes RequestAttributes(const GenerationRequest& request, absl::string_view model) {
  const kernels::SamplingParams& sampling = request.sampling;
  Attributes attributes = {
      {"gen_ai.request.max_tokens", int64_t{request.stop.max_tokens}},
      {"gen_ai.request.temperature", base::ShortestDouble(sampling.temperature)},
      {"gen_ai.request.top_p", base::ShortestDouble(sampling.top_p)},
      {"gen_ai.request.frequency_penalty", base::ShortestDouble(sampling.frequency_penalty)},
      {"gen_ai.request.presence_penalty", base::ShortestDouble(sampling.presence_penalty)},
      {"gen_ai.request.stream", request.is_streamed},
      {"gen_ai.output.type", std::string(request.is_json ? "json" : "text")},
      {"gen_ai.response.model", std::string(model)},
      {"foretoken.priority", int64_t{request.priority}},
      {"foretoken.seed", absl::StrCat(sampling.seed)},
      {"foretoken.speculation.mode", std::string(ModeName(request.speculation.mode))},
  };
  if (sampling.top_k > 0) attributes.push_back({"gen_ai.request.top_k", static_cast<double>(sampling.top_k)});
  const bool is_int64 = sampling.seed <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (request.has_clients_seed && is_int64) {
    attributes.push_back({"gen_ai.request.seed", static_cast<int64_t>(sampling.seed)});
  }
  if (request.num_samples > 1) attributes.push_back({"gen_ai.request.choice.count", int64_t{request.num_samples}});
  return attributes;
}

// The proposers that were asked for this step and whose newest tree is of an earlier one, or none.
std::vector<std::string> LateProposers(const StepReport& report) {
  std::vector<std::string> late;
  for (const std::string& asked : report.asked_proposers) {
    const auto is_in_time = [&](const ReportedProposer& proposer) {
      return proposer.name == asked && proposer.position == static_cast<uint64_t>(report.position);
    };
    if (std::ranges::none_of(report.proposers, is_in_time)) late.push_back(asked);
  }
  return late;
}

// A list without names is left out: most are empty, and steps have the most spans by far.
// `is_first`: of the sample's first token. Proposers hear of a prompt, and are asked from the next step on.
Attributes StepAttributes(const StepReport& report, bool is_first) {
  const StepForecast& forecast = report.step.forecast;
  const StepTimes& times = report.step.times;
  Attributes attributes;
  attributes.reserve(24);
  const auto add = [&attributes](absl::string_view key, auto value) { attributes.emplace_back(key, std::move(value)); };
  const auto add_names = [&](absl::string_view key, const std::vector<std::string>& names) {
    if (!names.empty()) add(key, names);
  };
  add("foretoken.step.index", static_cast<int64_t>(report.step.step_idx));
  add("foretoken.step.position", int64_t{report.position});
  add("foretoken.step.context_rows", int64_t{report.num_context_rows});
  add("foretoken.step.node_budget", int64_t{report.node_budget});
  add("foretoken.step.tree_nodes", static_cast<int64_t>(report.tree.token_ids.size()));
  add("foretoken.step.verified_nodes", int64_t{std::ranges::count(report.tree.planned, true)});
  add("foretoken.step.accepted", static_cast<int64_t>(report.accepted.size()));
  add("foretoken.step.tokens", static_cast<int64_t>(report.token_ids.size()));
  add("foretoken.step.expected_tokens", double{report.expected_tokens});
  add_names("foretoken.step.asked_proposers", report.asked_proposers);
  if (!is_first) add_names("foretoken.step.late_proposers", LateProposers(report));
  add_names("foretoken.step.resting_proposers", report.resting_proposers);
  add_names("foretoken.step.absent_proposers", report.absent_proposers);
  add_names("foretoken.step.refusing_proposers", report.refusing_proposers);
  add("foretoken.step.batch.sequences", int64_t{forecast.num_sequences});
  add("foretoken.step.batch.row_budget", int64_t{report.step.row_budget});
  add("foretoken.step.batch.rows", int64_t{forecast.num_rows});
  add("foretoken.step.batch.prompt_rows", int64_t{forecast.num_prompt_rows});
  add("foretoken.step.batch.tree_rows", int64_t{forecast.num_tree_rows});
  add("foretoken.step.expected_ms", double{forecast.step_ms});
  add("foretoken.step.forward_ms", times.forward_ms);
  add("foretoken.step.draw_ms", times.draw_ms);
  add("foretoken.step.host_ms", times.host_ms);
  add("foretoken.step.wait_ms", times.wait_ms);
  return attributes;
}

}  // namespace

CallTrace::CallTrace(const tracing::Tracer& tracer, TracedCall call)
    : tracer_(tracer),
      traces_steps_(call.traces_steps),
      call_(tracer.Begin({.name = call.method,
                          .kind = tracing::SpanKind::kServer,
                          .remote_parent = call.caller,
                          .begin = clock_.Now()})) {
  if (!is_recorded()) return;
  call_.attributes = tracing::RpcAttributes(
      {.method = std::move(call.method), .server = std::move(call.authority), .peer = std::move(call.peer)});
  call_.attributes.push_back({"gen_ai.provider.name", "foretoken"});
  call_.attributes.push_back({"gen_ai.request.model", std::move(call.model)});
  queue_ = tracer_.BeginChild(call_, "queue", call_.begin);
}

void CallTrace::Name(const std::string& request_id, const std::string& tenant) {
  request_id_ = request_id.substr(0, kMaxNameBytes);
  tenant_ = tenant.substr(0, kMaxNameBytes);
}

void CallTrace::Submit(const GenerationRequest& request, absl::string_view model) {
  if (!is_recorded()) return;
  Name(request.request_id, request.tenant);
  operation_ = request.is_chat ? "chat" : "text_completion";
  is_streamed_ = request.is_streamed;
  Attributes attributes = RequestAttributes(request, model);
  std::ranges::move(attributes, std::back_inserter(call_.attributes));
  num_prompt_tokens_ = std::ssize(request.prompt);
  samples_.resize(static_cast<size_t>(request.num_samples));
}

void CallTrace::EndQueue(absl::Time end) {
  if (!queue_.has_value()) return;
  queue_end_ = std::max(end, queue_->begin);
  tracer_.End(*std::exchange(queue_, std::nullopt), queue_end_);
}

void CallTrace::BeginPhase(Sample& sample, int32_t sample_index, std::string name, absl::Time begin) {
  sample.phase = tracer_.BeginChild(call_, std::move(name), begin);
  if (samples_.size() > 1) sample.phase->attributes.push_back({"foretoken.sample_index", int64_t{sample_index}});
}

void CallTrace::EndPhase(Sample& sample, absl::Time end) {
  if (!sample.phase.has_value()) return;
  tracer_.End(*std::exchange(sample.phase, std::nullopt), end);
}

void CallTrace::Observe(const SampleOutput& output) {
  if (!is_recorded()) return;
  if (output.began.has_value()) EndQueue(clock_.Wall(*output.began));
  if (!output.error.ok()) return;  // the call ends with this output
  Sample& sample = samples_[static_cast<size_t>(output.sample_index)];
  if (output.began.has_value()) {
    BeginPhase(sample, output.sample_index, "prompt", std::max(clock_.Wall(*output.began), queue_end_));
  }
  if (sample.phase.has_value()) ObserveRun(output, sample);
  if (output.completion.has_value()) Complete(*output.completion, sample);
}

void CallTrace::ObserveRun(const SampleOutput& output, Sample& sample) {
  const absl::Time now = clock_.Wall(output.time);
  if (traces_steps_) {
    for (const StepReport& report : output.steps) ObserveStep(report, sample);
  }
  if (!sample.has_token || !output.token_ids.empty()) sample.last_output = now;
  if (!output.token_ids.empty()) {
    const int64_t num_accepted = std::ranges::count(output.speculated, true);
    num_output_tokens_ += std::ssize(output.token_ids);
    num_accepted_ += num_accepted;
    ++num_steps_;
    if (!sample.has_token) {
      EndPhase(sample, now);
      BeginPhase(sample, output.sample_index, "decode", now);
      sample.has_token = true;
      if (!first_token_.has_value()) first_token_ = now;
    } else if (accepted_lengths_.size() < kMaxAcceptedLengths) {
      accepted_lengths_.push_back(num_accepted);
    }
  }
}

void CallTrace::Complete(const SampleCompletion& completion, Sample& sample) {
  finish_reasons_.push_back(std::string(FinishReasonName(completion.finish_reason)));
  num_cached_tokens_ = std::max<int64_t>(num_cached_tokens_, completion.num_cached_tokens);
  num_proposed_nodes_ += static_cast<int64_t>(completion.speculation.num_proposed_nodes);
  num_verified_nodes_ += static_cast<int64_t>(completion.speculation.num_verified_nodes);
  EndPhase(sample, sample.last_output);
}

// The parts of the engine's time since the step before are the step's own: a sample waits for all of them.
void CallTrace::ObserveStep(const StepReport& report, const Sample& sample) {
  const StepTimes& times = report.step.times;
  const absl::Time end = clock_.Wall(report.step.end);
  const absl::Duration length = absl::Milliseconds(times.forward_ms + times.draw_ms + times.host_ms + times.wait_ms);
  tracing::Span step = tracer_.BeginChild(*sample.phase, "step", std::max(end - length, sample.phase->begin));
  step.attributes = StepAttributes(report, /*is_first=*/!sample.has_token);
  for (const ReportedProposer& proposer : report.proposers) {
    if (!proposer.is_new) continue;
    const absl::Time arrived = clock_.Wall(proposer.arrived);
    tracing::Span proposal = tracer_.BeginChild(step, "proposal", std::min(clock_.Wall(proposer.asked), arrived));
    proposal.kind = tracing::SpanKind::kClient;
    proposal.attributes = {{"foretoken.proposer", proposer.name},
                           {"foretoken.proposal.position", static_cast<int64_t>(proposer.position)},
                           {"foretoken.proposal.usable_nodes", int64_t{proposer.num_nodes}},
                           {"foretoken.proposal.is_late", proposer.position < static_cast<uint64_t>(report.position)}};
    tracer_.End(std::move(proposal), arrived);
  }
  tracer_.End(std::move(step), end);
}

// What a request used. Only a sample's completion has the counts that come last, so a call that ends before some of its
// samples do does not know them.
void CallTrace::AddUsage() {
  Attributes& attributes = call_.attributes;
  attributes.push_back({"gen_ai.response.id", request_id_});
  attributes.push_back({"gen_ai.usage.input_tokens", num_prompt_tokens_});
  attributes.push_back({"gen_ai.usage.output_tokens", num_output_tokens_});
  attributes.push_back({"foretoken.speculation.steps", num_steps_});
  attributes.push_back({"foretoken.speculation.accepted_tokens", num_accepted_});
  attributes.push_back({"foretoken.speculation.accepted_lengths", std::move(accepted_lengths_)});
  const bool is_complete = finish_reasons_.size() == samples_.size();
  if (!finish_reasons_.empty()) attributes.push_back({"gen_ai.response.finish_reasons", std::move(finish_reasons_)});
  if (!is_complete) return;
  attributes.push_back({"gen_ai.usage.cache_read.input_tokens", num_cached_tokens_});
  attributes.push_back({"foretoken.speculation.proposed_nodes", num_proposed_nodes_});
  attributes.push_back({"foretoken.speculation.verified_nodes", num_verified_nodes_});
}

void CallTrace::End(const absl::Status& status) {
  if (!is_recorded()) return;
  const absl::Time now = clock_.Now();
  EndQueue(now);
  for (Sample& sample : samples_) EndPhase(sample, sample.has_token ? sample.last_output : now);
  tracing::SetRpcStatus(status, call_);
  Attributes& attributes = call_.attributes;
  attributes.push_back({"gen_ai.operation.name", operation_});
  if (!status.ok()) attributes.push_back({"foretoken.reason", base::ReasonOf(status)});
  if (!tenant_.empty()) attributes.push_back({"foretoken.tenant", tenant_});
  if (!samples_.empty()) {
    AddUsage();
  } else if (!request_id_.empty()) {
    attributes.push_back({"foretoken.request_id", request_id_});
  }
  if (first_token_.has_value() && is_streamed_) {  // or the client has no chunk before the last
    attributes.push_back({"gen_ai.response.time_to_first_chunk", absl::ToDoubleSeconds(*first_token_ - call_.begin)});
  }
  tracer_.End(std::move(call_), now);
}

}  // namespace foretoken::verifier
