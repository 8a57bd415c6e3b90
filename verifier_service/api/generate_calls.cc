// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/generate_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"
#include "common/rpc/metadata.h"
#include "common/rpc/parse_message.h"

namespace foretoken::verifier {
namespace {

constexpr absl::Duration kMaxStallPeriod = absl::Seconds(1);

// With two threads one long text does not delay the next request.
constexpr int kNumParsers = 2;
constexpr int kNumCompilers = 1;

// A request without a text takes about as long as this many bytes of text.
constexpr size_t kBytesOfACall = 1024;

}  // namespace

GenerateCalls::GenerateCalls(GenerateCallsParts parts)
    : tokens_(parts.tokens),
      context_{.model = parts.model,
               .bounds = RequestBounds(parts.model),
               .engine = std::move(parts.engine),
               .publisher = parts.publisher,
               .metrics = parts.metrics,
               .draw_bits = std::move(parts.draw_bits),
               .tracer = std::move(parts.tracer),
               .traces_steps = parts.traces_steps,
               .grammars = parts.grammars,
               .compile_places = &compile_places_,
               .compile_queue = &compile_queue_,
               .unread = UnreadOutputs(parts.unread.max_bytes),
               .end_unread =
                   [this, max_bytes = parts.unread.max_bytes](Ticket ticket) {
                     const std::string why =
                         absl::StrCat("all calls together have over ", max_bytes, " bytes, and this call has the most");
                     if (const std::shared_ptr<GenerateCall> call = FindCall(ticket)) {
                       call->EndUnread(why);
                     } else {
                       answers_.Cancel(ticket, why);
                     }
                   },
               .connections = rpc::ConnectionAges(parts.max_connection_age)},
      compile_places_(parts.max_compilations),
      compile_queue_(kNumCompilers),
      parse_queue_(kNumParsers),
      stall_watch_(std::min(kMaxStallPeriod, parts.unread.max_write_time / 4),
                   [this, max_time = parts.unread.max_write_time] {
                     for (const std::shared_ptr<GenerateCall>& call : Calls()) call->EndIfStalled(max_time);
                     answers_.CancelOlderThan(max_time);
                   }) {}

bool GenerateCalls::WaitUntilIdle(absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  return WaitAtMost(timeout, call_ended_, lock, [this] { return calls_.empty(); });
}

size_t GenerateCalls::num_running() const {
  const std::lock_guard lock(mutex_);
  return calls_.size();
}

std::shared_ptr<GenerateCall> GenerateCalls::FindCall(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto call = calls_.find(ticket);
  return call == calls_.end() ? nullptr : call->second.lock();
}

// Returns copies, because the caller must not hold the lock: a call takes the lock when it is done.
std::vector<std::shared_ptr<GenerateCall>> GenerateCalls::Calls() {
  std::vector<std::shared_ptr<GenerateCall>> calls;
  const std::lock_guard lock(mutex_);
  for (const auto& [ticket, weak_call] : calls_) {
    if (std::shared_ptr<GenerateCall> call = weak_call.lock()) calls.push_back(std::move(call));
  }
  return calls;
}

void GenerateCalls::ShutDownAll() {
  const std::vector<std::shared_ptr<GenerateCall>> calls = Calls();
  // Waiting calls end first. Otherwise they could begin in the places that running calls free.
  for (const std::shared_ptr<GenerateCall>& call : calls) call->EndIfNothingGenerated();
  for (const std::shared_ptr<GenerateCall>& call : calls) call->ShutDown();
}

void GenerateCalls::EndAll(const absl::Status& status) {
  for (const std::shared_ptr<GenerateCall>& call : Calls()) call->End(status);
}

void GenerateCalls::FailAll(const absl::Status& status) {
  std::vector<SampleOutput> errors;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [ticket, call] : calls_) errors.push_back({.ticket = ticket, .error = status});
  }
  context_.publisher->Publish(std::move(errors));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCalls::Start(IncomingCall incoming) {
  const Ticket ticket = NewTicket();
  const absl::Status allowed = CheckClient(*incoming.context);
  std::shared_ptr<GenerateCall> call =
      GenerateCall::Make(&context_, {.rpc = incoming.context,
                                     .ticket = ticket,
                                     .method = std::move(incoming.method),
                                     .rpc_name = incoming.rpc,
                                     .may_be_traced = allowed.ok(),
                                     .format = std::move(incoming.format),
                                     .share = calls_in_use_.Share(),
                                     .on_done = [this, ticket] {
                                       parse_queue_.Remove(ticket);  // if the call was cancelled before its turn
                                       compile_queue_.Remove(ticket);
                                       const std::lock_guard lock(mutex_);
                                       calls_.erase(ticket);
                                       call_ended_.notify_all();
                                     }});
  {
    const std::lock_guard lock(mutex_);
    calls_.emplace(ticket, call);
  }
  GenerateCall* const reactor = call.get();
  if (!allowed.ok()) {
    call->End(allowed);
    return reactor;
  }
  if (!incoming.request->Valid() && incoming.context->IsCancelled()) {  // before its message came
    call->End(absl::CancelledError("the client has gone"));
    return reactor;
  }
  const std::string tenant = call->Register(*incoming.request);
  const int64_t num_samples = call->PeekNumSamples(*incoming.request);
  grpc::ByteBuffer bytes = rpc::TakeBytes(*incoming.request);
  const size_t num_bytes = bytes.Length();
  absl::StatusOr<QueuePlace> place = context_.engine.reserve({.num_bytes = static_cast<int64_t>(num_bytes),
                                                              .num_samples = num_samples,
                                                              .deadline = call->deadline(),
                                                              .tenant = tenant});
  if (!place.ok()) {
    call->End(place.status());
    return reactor;
  }
  parse_queue_.Push({.tenant = tenant, .ticket = ticket, .cost = static_cast<double>(num_bytes + kBytesOfACall)},
                    [call = std::move(call), place = *std::move(place), bytes = std::move(bytes)]() mutable {
                      call->Start(std::move(place), bytes);
                    });
  return reactor;
}

void GenerateCalls::BeginAnswer(Ticket ticket, grpc::CallbackServerContext& context, const grpc::ByteBuffer& message) {
  if (const std::optional<Ticket> other = answers_.Begin(ticket, context, message.Length())) {
    context_.end_unread(*other);
  }
}

absl::Status GenerateCalls::CheckClient(const grpc::CallbackServerContext& context) const {
  if (tokens_ == nullptr) return absl::OkStatus();
  return tokens_->Check(rpc::MetadataValue(context.client_metadata(), "authorization"));
}

bool GenerateCalls::Abort(const RequestName& name) {
  bool has_found = false;
  for (const Ticket ticket : context_.requests.Find(name)) {
    const std::shared_ptr<GenerateCall> call = FindCall(ticket);
    if (call == nullptr) continue;
    call->Abort();
    has_found = true;
  }
  return has_found;
}

}  // namespace foretoken::verifier
