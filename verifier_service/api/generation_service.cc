// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/generation_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/metadata.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/peek_string.h"
#include "common/rpc/status.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

constexpr absl::Duration kMaxStallPeriod = absl::Seconds(1);

// With two threads one long text does not delay the next request.
constexpr int kNumWorkers = 2;
constexpr int kNumLookupWorkers = 1;

v1::SamplingOptions DefaultSampling(const kernels::SamplingParams& defaults) {
  v1::SamplingOptions sampling;
  sampling.set_temperature(defaults.temperature);
  sampling.set_top_k(static_cast<uint32_t>(defaults.top_k));
  sampling.set_top_p(defaults.top_p);
  sampling.set_min_p(defaults.min_p);
  sampling.set_repetition_penalty(defaults.repetition_penalty);
  sampling.set_presence_penalty(defaults.presence_penalty);
  sampling.set_frequency_penalty(defaults.frequency_penalty);
  sampling.set_n(1);
  return sampling;
}

// A lookup that waits for its turn. Its worker or its cancellation takes it from the queue and finishes it.
class LookupCall : public grpc::ServerUnaryReactor {
 public:
  using FinishWith = std::function<void(const absl::Status& status, grpc::ServerUnaryReactor* reactor)>;
  LookupCall(WorkQueue& queue, Ticket ticket, FinishWith finish)
      : queue_(queue), ticket_(ticket), finish_(std::move(finish)) {}

 private:
  void OnCancel() override {
    if (queue_.Remove(ticket_)) finish_(absl::CancelledError("the client has gone"), this);
  }
  void OnDone() override { delete this; }

  WorkQueue& queue_;
  const Ticket ticket_;
  const FinishWith finish_;
};

}  // namespace

GenerationService::GenerationService(GenerationServiceParts parts)
    : proposers_(std::move(parts.proposers)),
      max_lookups_(parts.max_lookups),
      tokens_(parts.tokens),
      call_context_{.model = parts.model,
                    .bounds = RequestBounds(parts.model),
                    .engine = std::move(parts.engine),
                    .publisher = parts.publisher,
                    .metrics = parts.metrics,
                    .draw_bits = std::move(parts.draw_bits),
                    .tracer = std::move(parts.tracer),
                    .traces_steps = parts.traces_steps,
                    .unread = UnreadOutputs(parts.unread.max_bytes),
                    .end_unread =
                        [this, max_bytes = parts.unread.max_bytes](Ticket ticket) {
                          if (const std::shared_ptr<GenerateCall> call = FindCall(ticket)) {
                            call->EndUnread(absl::StrCat("all calls together have over ", max_bytes,
                                                         " bytes, and this call has the most"));
                          }
                        }},
      work_queue_(kNumWorkers),
      lookup_queue_(kNumLookupWorkers),
      stall_watch_(std::min(kMaxStallPeriod, parts.unread.max_write_time / 4),
                   [this, max_time = parts.unread.max_write_time] {
                     for (const std::shared_ptr<GenerateCall>& call : Calls()) call->EndIfStalled(max_time);
                   }) {}

bool GenerationService::WaitUntilIdle(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto is_idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  return mutex_.AwaitWithTimeout(absl::Condition(&is_idle), timeout);
}

std::shared_ptr<GenerateCall> GenerationService::FindCall(Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  const auto call = calls_.find(ticket);
  return call == calls_.end() ? nullptr : call->second.lock();
}

// Returns copies, because the caller must not hold the lock: a call takes the lock when it is done.
std::vector<std::shared_ptr<GenerateCall>> GenerationService::Calls() {
  std::vector<std::shared_ptr<GenerateCall>> calls;
  absl::MutexLock lock(&mutex_);
  for (const auto& [ticket, weak_call] : calls_) {
    if (std::shared_ptr<GenerateCall> call = weak_call.lock()) calls.push_back(std::move(call));
  }
  return calls;
}

void GenerationService::ShutDownAll() {
  const std::vector<std::shared_ptr<GenerateCall>> calls = Calls();
  // Waiting calls end first. Otherwise they could begin in the places that running calls free.
  for (const std::shared_ptr<GenerateCall>& call : calls) call->EndIfNothingGenerated();
  for (const std::shared_ptr<GenerateCall>& call : calls) call->ShutDown();
}

void GenerationService::FailAll(const absl::Status& status) {
  std::vector<SampleOutput> errors;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [ticket, call] : calls_) errors.push_back({.ticket = ticket, .error = status});
  }
  call_context_.publisher->Publish(std::move(errors));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::Generate(grpc::CallbackServerContext* context,
                                                                        const grpc::ByteBuffer* request) {
  const Ticket ticket = next_ticket_.fetch_add(1);
  const absl::Status allowed = CheckClient(*context);
  std::shared_ptr<GenerateCall> call =
      GenerateCall::Make(&call_context_, context, ticket, allowed.ok(), [this, ticket] {
        work_queue_.Remove(ticket);  // if the call was cancelled before its turn
        absl::MutexLock lock(&mutex_);
        calls_.erase(ticket);
      });
  {
    absl::MutexLock lock(&mutex_);
    calls_.emplace(ticket, call);
  }
  GenerateCall* const reactor = call.get();
  if (!allowed.ok()) {
    call->End(allowed);
    return reactor;
  }
  const std::string tenant =
      rpc::PeekString(*request, {.number = v1::GenerateRequest::kTenantFieldNumber, .max_bytes = kMaxNameBytes});
  absl::StatusOr<QueuePlace> place = call_context_.engine.reserve(
      {.num_bytes = static_cast<int64_t>(request->Length()), .deadline = call->deadline(), .tenant = tenant});
  if (!place.ok()) {
    call->End(place.status());
    return reactor;
  }
  work_queue_.Push(ticket, [call = std::move(call), place = *std::move(place), bytes = *request]() mutable {
    call->Start(std::move(place), bytes);
  });
  return reactor;
}

absl::Status GenerationService::CheckClient(const grpc::CallbackServerContext& context) const {
  if (tokens_ == nullptr) return absl::OkStatus();
  return tokens_->Check(rpc::MetadataValue(context.client_metadata(), "authorization"));
}

absl::StatusOr<GenerationService::LookupPlace> GenerationService::ReserveLookup() {
  if (num_lookups_.fetch_add(1) >= max_lookups_) {
    num_lookups_.fetch_sub(1);
    return base::Passing(base::WithReason(
        absl::ResourceExhaustedError(absl::StrCat("Tokenize and Detokenize: ", max_lookups_, " calls are waiting")),
        "LOOKUPS_FULL"));
  }
  return LookupPlace(&num_lookups_);
}

template <typename Request, typename Response>
absl::Status GenerationService::Handle(const grpc::ByteBuffer& request, const Method<Request, Response>& method,
                                       grpc::ByteBuffer* response) {
  Request message;
  FT_RETURN_IF_ERROR(rpc::ParseMessage(request, method.bounds, message));
  FT_ASSIGN_OR_RETURN(const Response answer, (this->*method.handle)(message));
  bool owns_buffer;
  FT_CHECK(grpc::SerializationTraits<Response>::Serialize(answer, response, &owns_buffer).ok());
  return absl::OkStatus();
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* GenerationService::Answer(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                                    const Method<Request, Response>& method) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::Status status = CheckClient(*context);
  if (status.ok()) status = Handle(*request, method, response);
  FinishUnary(method.name, status, context, reactor);
  return reactor;
}

void GenerationService::FinishUnary(absl::string_view name, const absl::Status& status,
                                    grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor) {
  call_context_.metrics->CountCall(name, status);
  rpc::AddPushback(status, *context);
  reactor->Finish(rpc::ToGrpc(status));
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* GenerationService::LookUp(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                                    const Method<Request, Response>& method) {
  const Ticket ticket = next_ticket_.fetch_add(1);
  const auto finish = [this, context, name = method.name](const absl::Status& status,
                                                          grpc::ServerUnaryReactor* reactor) {
    FinishUnary(name, status, context, reactor);
  };
  auto* const reactor = new LookupCall(lookup_queue_, ticket, finish);
  if (const absl::Status allowed = CheckClient(*context); !allowed.ok()) {
    finish(allowed, reactor);
    return reactor;
  }
  absl::StatusOr<LookupPlace> place = ReserveLookup();
  if (!place.ok()) {
    finish(place.status(), reactor);
    return reactor;
  }
  lookup_queue_.Push(ticket,
                     [this, method, finish, reactor, response, bytes = *request, place = *std::move(place)]() mutable {
                       const absl::Status status = Handle(bytes, method, response);
                       place.reset();  // before the client sees the answer, so that it may call again at once
                       finish(status, reactor);
                     });
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Abort(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Answer<v1::AbortRequest, v1::AbortResponse>(
      context, request, response,
      {.name = "Abort", .bounds = call_context_.bounds.abort, .handle = &GenerationService::Abort});
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return LookUp<v1::TokenizeRequest, v1::TokenizeResponse>(
      context, request, response,
      {.name = "Tokenize", .bounds = call_context_.bounds.tokenize, .handle = &GenerationService::Tokenize});
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return LookUp<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      context, request, response,
      {.name = "Detokenize", .bounds = call_context_.bounds.detokenize, .handle = &GenerationService::Detokenize});
}

grpc::ServerUnaryReactor* GenerationService::GetModelInfo(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Answer<v1::GetModelInfoRequest, v1::GetModelInfoResponse>(context, request, response,
                                                                   {.name = "GetModelInfo",
                                                                    .bounds = call_context_.bounds.get_model_info,
                                                                    .handle = &GenerationService::GetModelInfo});
}

absl::StatusOr<v1::AbortResponse> GenerationService::Abort(const v1::AbortRequest& request) {
  if (request.request_id().empty()) {
    return rpc::InvalidField("request_id", "expected the id of a request, got none");
  }
  const std::optional<Ticket> ticket =
      call_context_.requests.Find({.tenant = request.tenant(), .request_id = request.request_id()});
  const std::shared_ptr<GenerateCall> call = ticket ? FindCall(*ticket) : nullptr;
  if (call != nullptr) call->Abort();
  v1::AbortResponse response;
  response.set_aborted(call != nullptr);
  return response;
}

absl::StatusOr<v1::TokenizeResponse> GenerationService::Tokenize(const v1::TokenizeRequest& request) {
  const ServedModel& model = call_context_.model;
  FT_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TextToEncode args = {.text = request.text(), .field = "text"};
  if (request.has_add_special_tokens()) args.add_special_tokens = request.add_special_tokens();
  args.parse_special_tokens = request.parse_special_tokens();
  FT_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EncodeText(args, model));
  v1::TokenizeResponse response;
  for (const int32_t id : ids) {
    response.add_token_ids(static_cast<uint32_t>(id));
    response.add_token_bytes(model.tokenizer->vocabulary().Find(id)->bytes);
  }
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> GenerationService::Detokenize(const v1::DetokenizeRequest& request) {
  const ServedModel& model = call_context_.model;
  FT_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  FT_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, CheckTokenIds(request.token_ids(), "token_ids", model));
  const bool skip_special = !request.has_skip_special_tokens() || request.skip_special_tokens();
  v1::DetokenizeResponse response;
  FT_ASSIGN_OR_RETURN(*response.mutable_text(), model.tokenizer->Decode(ids, {.skip_special = skip_special}));
  for (const int32_t id : ids) response.add_token_bytes(model.tokenizer->vocabulary().Find(id)->bytes);
  return response;
}

absl::StatusOr<v1::GetModelInfoResponse> GenerationService::GetModelInfo(const v1::GetModelInfoRequest& request) {
  const ServedModel& model = call_context_.model;
  FT_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  v1::GetModelInfoResponse response;
  response.set_model(model.name);
  response.set_architecture(model.architecture);
  response.set_num_parameters(model.num_parameters);
  response.set_vocabulary_size(static_cast<uint32_t>(model.vocabulary_size));
  response.set_max_context_tokens(static_cast<uint32_t>(model.max_context_tokens));
  for (const int32_t id : model.end_token_ids) response.add_end_token_ids(static_cast<uint32_t>(id));
  response.set_vocabulary_fingerprint(model.vocabulary_fingerprint);
  response.set_numerics_fingerprint(model.numerics_fingerprint);
  *response.mutable_default_sampling() = DefaultSampling(model.default_sampling);
  for (const ProposerStatus& status : proposers_()) {
    v1::ProposerInfo& info = *response.add_proposers();
    info.set_proposer(status.name);
    info.set_num_connected(static_cast<uint32_t>(status.num_connected));
  }
  response.set_max_tree_nodes(static_cast<uint32_t>(model.max_tree_nodes));
  response.set_version(base::Version());
  return response;
}

}  // namespace foretoken::verifier
