// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/generate_call.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point then, std::chrono::steady_clock::time_point now) {
  return std::chrono::duration<double>(now - then).count();
}

absl::StatusOr<std::string> EchoText(const GenerationRequest& request, const ServedModel& model) {
  if (!request.output.echo) return std::string();
  return model.tokenizer->Decode(request.prompt, {.skip_special = request.output.skip_special_tokens});
}

}  // namespace

std::shared_ptr<GenerateCall> GenerateCall::Make(CallContext* context, Ticket ticket, std::function<void()> on_done) {
  std::shared_ptr<GenerateCall> call(new GenerateCall(context, ticket, std::move(on_done)));
  call->self_ = call;
  return call;
}

GenerateCall::GenerateCall(CallContext* context, Ticket ticket, std::function<void()> on_done)
    : context_(context), ticket_(ticket), on_done_(std::move(on_done)) {}

void GenerateCall::Start(QueuePlace place, const grpc::ByteBuffer& request, const std::string& traceparent) {
  const absl::Status status = CheckAndSubmit(std::move(place), request, traceparent);
  if (!status.ok()) Fail(status);  // the place is free again by now, so that a client may try again at once
}

absl::Status GenerateCall::CheckAndSubmit(QueuePlace place, const grpc::ByteBuffer& bytes,
                                          const std::string& traceparent) {
  v1::GenerateRequest message;
  FT_RETURN_IF_ERROR(rpc::ParseMessage(bytes, message));
  FT_ASSIGN_OR_RETURN(GenerationRequest request, ConvertRequest(message, context_->model, context_->draw_bits));
  request.ticket = ticket_;
  request.traceparent = traceparent;
  return Submit(std::move(place), std::move(request));
}

absl::Status GenerateCall::Submit(QueuePlace place, GenerationRequest request) {
  FT_ASSIGN_OR_RETURN(std::string echo_text, EchoText(request, context_->model));
  {
    absl::MutexLock lock(&mutex_);
    if (early_end_) return absl::OkStatus();
    outbox_.emplace(OutboxOptions{.request_id = request.request_id,
                                  .num_samples = request.num_samples,
                                  .seed = request.sampling.seed,
                                  .numerics_fingerprint = context_->model.numerics_fingerprint,
                                  .prompt_text = std::move(echo_text)});
    last_tokens_.resize(request.num_samples);
  }
  context_->publisher->Subscribe(
      ticket_, [call = shared_from_this()](SampleOutput output) { call->Deliver(std::move(output)); });
  const absl::Status status = context_->engine.submit(std::move(place), std::move(request));
  absl::MutexLock lock(&mutex_);
  is_submitted_ = status.ok();
  if (early_end_ && is_submitted_) context_->engine.abort(ticket_);
  // After a cancellation OnDone may have come and gone, and nobody else would unsubscribe.
  if (early_end_ || !is_submitted_) context_->publisher->Unsubscribe(ticket_);
  return status;
}

void GenerateCall::Fail(const absl::Status& status) {
  NextAction action;
  {
    absl::MutexLock lock(&mutex_);
    if (!early_end_) early_end_ = status;
    action = Next();
  }
  Do(action);
}

void GenerateCall::Deliver(SampleOutput output) {
  NextAction action;
  {
    absl::MutexLock lock(&mutex_);
    if (is_finished_) return;
    Observe(output);
    outbox_->Add(std::move(output));
    action = Next();
  }
  Do(action);
}

void GenerateCall::Observe(const SampleOutput& output) {
  if (output.token_ids.empty()) return;
  const Clock::time_point now = Clock::now();
  std::optional<Clock::time_point>& last = last_tokens_[output.sample_index];
  if (last) {
    context_->metrics->ObserveTokens(SecondsSince(*last, now), output.token_ids.size());
  } else {
    context_->metrics->ObserveFirstToken(SecondsSince(arrival_, now));
  }
  last = now;
}

void GenerateCall::OnWriteDone(bool ok) {
  if (!ok) Cancel();
  NextAction action;
  {
    absl::MutexLock lock(&mutex_);
    is_writing_ = false;
    action = Next();
  }
  Do(action);
}

void GenerateCall::OnCancel() {
  Cancel();
  NextAction action;
  {
    absl::MutexLock lock(&mutex_);
    action = Next();
  }
  Do(action);
}

void GenerateCall::Cancel() {
  absl::MutexLock lock(&mutex_);
  if (is_finished_ || early_end_) return;
  early_end_ = absl::CancelledError("the client has gone");
  if (is_submitted_) context_->engine.abort(ticket_);
}

GenerateCall::NextAction GenerateCall::Next() {
  if (is_finished_ || is_writing_) return {};
  std::optional<absl::Status> end = early_end_;
  if (!end && outbox_) {
    if (std::optional<v1::GenerateResponse> message = outbox_->Take()) {
      bool owns_buffer;
      message_.Clear();
      const grpc::Status serialized =
          grpc::SerializationTraits<v1::GenerateResponse>::Serialize(*message, &message_, &owns_buffer);
      FT_CHECK(serialized.ok());
      is_writing_ = true;
      return {.write = true};
    }
    end = outbox_->Result();
  }
  if (!end) return {};
  is_finished_ = true;
  return {.finish = end};
}

void GenerateCall::Do(const NextAction& action) {
  if (action.write) StartWrite(&message_);
  if (action.finish) {
    context_->metrics->CountCall(action.finish->code());
    Finish(rpc::ToGrpc(*action.finish));
  }
}

void GenerateCall::OnDone() {
  context_->publisher->Unsubscribe(ticket_);
  const std::function<void()> on_done = on_done_;
  self_.reset();  // may be the end of *this
  on_done();
}

}  // namespace foretoken::verifier
