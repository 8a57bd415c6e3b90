// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/generate_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "common/rpc/call_reference.h"
#include "common/rpc/metadata.h"
#include "common/rpc/status.h"
#include "verifier_service/api/format_conversion.h"
#include "verifier_service/engine/commit.h"

namespace foretoken::verifier {
namespace {

// A client stops its call at its own deadline. The server may receive that cancellation before its own clock reaches
// the deadline: gRPC rounds a call's time up by at most a hundredth, and messages take time to arrive.
constexpr double kDeadlineSlack = 0.01;
constexpr absl::Duration kDeadlineTravel = absl::Milliseconds(20);

// A client may cancel a call and retry with the same id. The server may see the retry before the cancellation.
constexpr std::chrono::milliseconds kIdPatience(100);
constexpr std::chrono::milliseconds kIdRetryPeriod(5);

// A draining server closes a connection with its last status, and so does one that limits the age of connections. If
// the client is then still acknowledging messages, the kernel resets the connection, and the client loses what it has
// not read. So the status waits until the client has most likely read the messages: for longer than a round trip to a
// client far away. The call's deadline would take the status first, so a status does not wait where that is near.
constexpr std::chrono::milliseconds kLinger(250);

TracedCall CallOf(const std::string& method, const CallContext& server, const grpc::CallbackServerContext& context) {
  const grpc::string_ref authority = context.ExperimentalGetAuthority();
  return {.method = method,
          .caller = server.tracer.Extract(rpc::MetadataValue(context.client_metadata(), "traceparent"),
                                          rpc::MetadataValue(context.client_metadata(), "tracestate")),
          .authority = std::string(authority.data(), authority.size()),
          .peer = context.peer(),
          .model = server.model.name,
          .traces_steps = server.traces_steps};
}

// A deadline may be centuries away. The times of std::chrono end in the year 2262, so gRPC's own are compared.
absl::Duration TimeLeft(const grpc::CallbackServerContext& context) {
  const gpr_timespec left = gpr_time_sub(context.raw_deadline(), gpr_now(context.raw_deadline().clock_type));
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  constexpr absl::Duration kNever = absl::Hours(24 * 365);
  const absl::Duration left = TimeLeft(context);
  return left < kNever ? SteadyNow() + left : absl::InfiniteFuture();
}

absl::StatusOr<std::string> EchoText(const GenerationRequest& request, const ServedModel& model) {
  if (!request.output.echo) return std::string();
  return model.tokenizer->Decode(request.prompt, {.skip_special = request.output.skip_special_tokens});
}

}  // namespace

std::shared_ptr<GenerateCall> GenerateCall::Make(CallContext* context, GenerateCallArgs args) {
  static const tracing::Tracer no_tracer;
  CallTrace trace(args.may_be_traced ? context->tracer : no_tracer, CallOf(args.method, *context, *args.rpc));
  std::shared_ptr<GenerateCall> call(new GenerateCall(context, std::move(args), std::move(trace)));
  call->self_ = call;
  call->Name({.tenant = call->names_.tenant, .request_id = call->names_.request_id});
  return call;
}

GenerateCall::GenerateCall(CallContext* context, GenerateCallArgs args, CallTrace trace)
    : share_(std::move(args.share)),
      context_(context),
      rpc_(args.rpc),
      ticket_(args.ticket),
      deadline_(DeadlineOf(*args.rpc)),
      peer_(args.rpc->peer()),
      names_(rpc::NamesOf(args.rpc->client_metadata())),
      on_done_(std::move(args.on_done)),
      trace_context_(trace.context()),
      is_traced_(trace.is_recorded()),
      format_(std::move(args.format)),
      record_({.metrics = context->metrics, .fault_lines = &context->fault_lines}, std::move(trace), args.rpc_name) {
  context_->connections.BeginCall(peer_, Clock::now());
}

bool GenerateCall::LeaveConnection() {
  return !std::exchange(has_left_, true) && context_->connections.EndCall(peer_, Clock::now());
}

void GenerateCall::Name(const RequestName& name) {
  absl::MutexLock lock(&mutex_);
  record_.Name(name.request_id, name.tenant);
}

std::string GenerateCall::Register(const grpc::ByteBuffer& request) {
  RequestName name = format_->PeekName(request);
  if (name.tenant.empty()) name.tenant = names_.tenant;
  if (name.request_id.empty()) name.request_id = names_.request_id;
  Name(name);
  std::string tenant = name.tenant;
  if (!name.request_id.empty()) {
    absl::MutexLock lock(&mutex_);
    if (!early_end_) registration_ = context_->requests.Register(std::move(name), ticket_);
  }
  return tenant;
}

int64_t GenerateCall::PeekNumSamples(const grpc::ByteBuffer& request) const {
  return static_cast<int64_t>(std::clamp<uint64_t>(format_->PeekNumSamples(request).value_or(1), 1, kMaxSamples));
}

void GenerateCall::Start(QueuePlace place, const grpc::ByteBuffer& request) {
  absl::StatusOr<CheckedRequest> checked = Check(std::move(place), request);
  if (!checked.ok()) return End(checked.status());  // Check has released the place, so the client may retry at once
  const bool must_compile = checked->form.has_value();
  const RequestName name = {.tenant = checked->request.tenant, .request_id = checked->request.request_id};
  bool goes_on = false;
  Update([&] {
    if (early_end_) return;
    checked_ = *std::move(checked);
    if (is_unwanted_) return AnswerAborted();
    if (!registration_ || registration_->name() != name) {
      registration_ = context_->requests.Register(name, ticket_);
    }
    goes_on = true;
  });
  if (!goes_on) return;
  if (!must_compile) return TrySubmit(Clock::now() + kIdPatience);
  absl::StatusOr<CompilePlaces::Place> compile_place = context_->compile_places->Take(name.tenant);
  if (!compile_place.ok()) return End(compile_place.status());
  context_->compile_queue->Push({.tenant = name.tenant, .ticket = ticket_},
                                [call = shared_from_this(), place = *std::move(compile_place)]() mutable {
                                  call->CompileForm(std::move(place));
                                });
}

void GenerateCall::CompileForm(CompilePlaces::Place place) {
  GrammarSource form;
  v1::ResponseFormat format;
  std::string tenant;
  {
    absl::MutexLock lock(&mutex_);
    if (!checked_) return;
    form = *std::exchange(checked_->form, std::nullopt);
    format = std::move(checked_->format);
    tenant = checked_->request.tenant;
  }
  GrammarCompiler::Result grammar = context_->grammars->Get(form, tenant);
  place.reset();  // before the client sees an error, so that it may call again at once
  bool goes_on = false;
  Update([&] {
    if (!checked_) return;
    if (!grammar.ok()) return EndLocked(format_->Explain(FormatError(format, grammar.status())));
    checked_->request.grammar = *std::move(grammar);
    goes_on = true;
  });
  if (goes_on) TrySubmit(Clock::now() + kIdPatience);
}

absl::StatusOr<GenerationRequest> GenerateCall::Convert(const v1::GenerateRequest& message) const {
  absl::StatusOr<GenerationRequest> request = ConvertRequest(message, context_->model, context_->draw_bits);
  if (!request.ok()) return format_->Explain(request.status());
  return request;
}

absl::StatusOr<GenerateCall::CheckedRequest> GenerateCall::Check(QueuePlace place, const grpc::ByteBuffer& bytes) {
  if (SteadyNow() >= deadline_) return absl::DeadlineExceededError("the call's deadline has passed");
  FT_ASSIGN_OR_RETURN(v1::GenerateRequest message, format_->Read(bytes));
  Name({.tenant = message.tenant(), .request_id = message.request_id()});
  FT_RETURN_IF_ERROR(rpc::FillIn(names_, message));
  FT_ASSIGN_OR_RETURN(GenerationRequest request, Convert(message));
  request.ticket = ticket_;
  request.deadline = deadline_;
  request.is_streamed = format_->streams();
  request.traceparent = context_->tracer.Inject(trace_context_);
  request.tracestate = trace_context_.state;
  const bool sends_reports = request.speculation.reports_steps;
  if (is_traced_ && context_->traces_steps) request.speculation.reports_steps = true;
  FT_ASSIGN_OR_RETURN(std::string echo_text, EchoText(request, context_->model));
  CheckedRequest checked = {.place = std::move(place),
                            .request = std::move(request),
                            .echo_text = std::move(echo_text),
                            .sends_reports = sends_reports};
  FT_RETURN_IF_ERROR(FindForm(message, checked));
  return checked;
}

// Takes the request's form from the cache, or notes it for the thread that compiles.
absl::Status GenerateCall::FindForm(const v1::GenerateRequest& message, CheckedRequest& checked) const {
  absl::StatusOr<std::optional<GrammarSource>> form = ConvertFormat(message, context_->model);
  if (!form.ok()) return format_->Explain(form.status());
  checked.form = *std::move(form);
  if (!checked.form.has_value()) return absl::OkStatus();
  if (context_->grammars == nullptr) {
    return format_->Explain(rpc::InvalidField("response_format", "expected none, because this server has no compiler"));
  }
  if (std::optional<GrammarCompiler::Result> cached = context_->grammars->Find(*checked.form)) {
    if (!cached->ok()) return format_->Explain(FormatError(message.response_format(), cached->status()));
    checked.request.grammar = **std::move(cached);
    checked.form.reset();
  } else {
    checked.format = message.response_format();
  }
  return absl::OkStatus();
}

void GenerateCall::TrySubmit(Clock::time_point patience_end) {
  const absl::Status status = Submit();
  if (absl::IsAlreadyExists(status) && Clock::now() < patience_end) {
    // The alarm keeps its function, so the function holds only a weak reference to the call.
    const auto next_try = std::chrono::system_clock::now() + kIdRetryPeriod;
    retry_alarm_.Set(next_try, [weak_call = weak_from_this(), patience_end](bool) {
      if (const std::shared_ptr<GenerateCall> call = weak_call.lock()) call->TrySubmit(patience_end);
    });
  } else if (!status.ok()) {
    End(status);
  }
}

absl::Status GenerateCall::Submit() {
  std::optional<CheckedRequest> checked;
  {
    absl::MutexLock lock(&mutex_);
    if (!checked_) return absl::OkStatus();  // the call has ended meanwhile
    FT_RETURN_IF_ERROR(registration_->Claim());
    checked = OpenOutbox();
  }
  context_->publisher->Subscribe(
      ticket_, [call = shared_from_this()](SampleOutput output) { call->Deliver(std::move(output)); });
  const absl::Status status = context_->engine.submit(std::move(checked->place), std::move(checked->request));
  absl::MutexLock lock(&mutex_);
  is_submitted_ = status.ok();
  if (!is_submitted_) record_.Withdraw();
  if (is_unwanted_ && is_submitted_) context_->engine.abort(ticket_);
  // After a cancellation OnDone may have run already, so nothing else would unsubscribe.
  if (early_end_ || !is_submitted_) context_->publisher->Unsubscribe(ticket_);
  return status;
}

GenerateCall::CheckedRequest GenerateCall::OpenOutbox() {
  CheckedRequest checked = *std::exchange(checked_, std::nullopt);
  const GenerationRequest& request = checked.request;
  outbox_.emplace(OutboxOptions{.request_id = request.request_id,
                                .num_samples = request.num_samples,
                                .seed = request.sampling.seed,
                                .numerics_fingerprint = context_->model.numerics_fingerprint,
                                .prompt_text = std::move(checked.echo_text)});
  format_->Accept(request);
  record_.Submit(request, context_->model.name);
  sends_reports_ = checked.sends_reports;
  return checked;
}

void GenerateCall::AnswerAborted() {
  const CheckedRequest checked = OpenOutbox();
  for (int32_t i = 0; i < checked.request.num_samples; ++i) {
    AddOutput(AbortUnbegun(checked.request, checked.request.speculation.mode, i));
  }
}

void GenerateCall::Update(absl::FunctionRef<void()> change) {
  NextAction action;
  {
    absl::MutexLock lock(&mutex_);
    change();
    action = Next();
  }
  Do(action);
}

void GenerateCall::End(const absl::Status& status) {
  Update([&] { EndLocked(status); });
}

void GenerateCall::EndLocked(const absl::Status& status) {
  if (is_finished_ || early_end_ || has_lingered_) return;  // all was sent to a call that lingers
  early_end_ = status;
  checked_.reset();
  registration_.reset();
  EndInEngine();
}

// Tells the engine once. A client may repeat Abort while a step lasts, and the engine keeps every abort until its end.
void GenerateCall::EndInEngine() {
  const bool was_unwanted = std::exchange(is_unwanted_, true);
  if (is_submitted_ && !was_unwanted) context_->engine.abort(ticket_);
}

void GenerateCall::EndUnread(absl::string_view why) {
  const absl::Status status = UnreadError(why);
  std::optional<rpc::CallReference> call;
  Update([&] {
    EndLocked(status);
    if (is_writing_) call.emplace(*rpc_);
  });
  // Finish would wait until the client takes the current write. A cancellation does not wait, and carries the status.
  if (call) call->Cancel(status);
}

void GenerateCall::EndIfStalled(absl::Duration max_write_time) {
  {
    absl::MutexLock lock(&mutex_);
    if (!is_writing_ || Clock::now() - write_began_ < absl::ToChronoNanoseconds(max_write_time)) return;
  }
  EndUnread(NotTakenWithin(max_write_time));
}

void GenerateCall::Abort() {
  Update([&] {
    EndInEngine();
    if (checked_) AnswerAborted();
  });
}

void GenerateCall::EndIfNothingGenerated() {
  Update([&] {
    if (outbox_ && outbox_->has_output()) return;
    EndLocked(base::WithReason(
        absl::UnavailableError("the server is shutting down, and nothing was generated yet: try another server"),
        "DRAINING"));
  });
}

void GenerateCall::ShutDown() {
  absl::MutexLock lock(&mutex_);
  if (is_unwanted_) return;
  is_shut_down_ = true;
  EndInEngine();
}

void GenerateCall::Deliver(SampleOutput output) {
  Update([&] {
    if (!is_finished_ && !early_end_) AddOutput(std::move(output));
  });
}

void GenerateCall::AddOutput(SampleOutput output) {
  if (is_shut_down_ && output.completion && output.completion->finish_reason == FinishReason::kAbort) {
    output.completion->finish_reason = FinishReason::kShutdown;
  }
  if (!output.error.ok()) output.error = format_->Explain(std::move(output.error));
  record_.Observe(output);
  if (!sends_reports_) output.steps.clear();
  outbox_->Add(std::move(output));
}

void GenerateCall::OnWriteDone(bool ok) {
  Update([&] {
    if (!ok) EndLocked(WhyCancelled());
    is_writing_ = false;
  });
}

void GenerateCall::OnCancel() {
  Update([&] { EndLocked(WhyCancelled()); });
}

absl::Status GenerateCall::WhyCancelled() const {
  const absl::Duration served = SteadyNow() - record_.arrival();
  if (TimeLeft(*rpc_) <= kDeadlineTravel + kDeadlineSlack * served) {
    return absl::DeadlineExceededError("the call's deadline has passed");
  }
  return absl::CancelledError("the client has gone");
}

GenerateCall::NextAction GenerateCall::Next() {
  NextAction action = WriteOrFinish();
  action.end_unread = context_->unread.Set(ticket_, static_cast<int64_t>(NumUnreadBytes()));
  return action;
}

size_t GenerateCall::NumUnreadBytes() const {
  if (is_finished_ || early_end_) return 0;
  const size_t num_bytes = outbox_ ? outbox_->num_bytes() + format_->num_held_bytes() : 0;
  return num_bytes + (is_writing_ ? num_message_bytes_ : 0);
}

// Moves the next message of the output to message_; false without one.
bool GenerateCall::TakeMessage() {
  for (;;) {
    if (std::optional<grpc::ByteBuffer> message = format_->Take()) {
      message_ = *std::move(message);
      return true;
    }
    std::optional<v1::GenerateResponse> response = outbox_->Take();
    if (!response) return false;
    format_->Write(*std::move(response));
  }
}

GenerateCall::NextAction GenerateCall::WriteOrFinish() {
  if (is_finished_ || is_writing_) return {};
  std::optional<absl::Status> end = early_end_;
  if (!end && outbox_) {
    if (TakeMessage()) {
      is_writing_ = true;
      write_began_ = Clock::now();
      num_message_bytes_ = message_.Length();
      return {.write = true};
    }
    end = outbox_->Result();
  }
  if (!end) return {};
  const bool has_answered = outbox_ && !early_end_;
  const bool may_close = LeaveConnection() || context_->is_draining;
  const bool has_time = SteadyNow() + absl::FromChrono(kLinger) < deadline_;
  registration_.reset();  // before the client sees the end, so that it can reuse the id
  if (has_answered && may_close && has_time && !std::exchange(has_lingered_, true)) return {.linger = true};
  is_finished_ = true;
  record_.End(*end);
  return {.finish = end};
}

void GenerateCall::Do(const NextAction& action) {
  if (action.end_unread) context_->end_unread(*action.end_unread);  // first, because the next lines may destroy *this
  if (action.write) StartWrite(&message_);
  if (action.linger) {
    linger_alarm_.Set(std::chrono::system_clock::now() + kLinger, [weak_call = weak_from_this()](bool) {
      if (const std::shared_ptr<GenerateCall> call = weak_call.lock()) call->Update([] {});
    });
  }
  if (action.finish) {
    rpc::AddPushback(*action.finish, *rpc_);
    Finish(rpc::ToGrpc(*action.finish));
  }
}

void GenerateCall::OnDone() {
  context_->publisher->Unsubscribe(ticket_);
  {
    const absl::MutexLock lock(&mutex_);
    LeaveConnection();
  }
  const std::function<void()> on_done = on_done_;
  self_.reset();  // may destroy *this
  on_done();
}

}  // namespace foretoken::verifier
