// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/generation_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace foretoken::verifier {
namespace {

// Enough that one long text does not keep the next request waiting.
constexpr int kNumWorkers = 2;

// The caller's W3C trace context, where it sent a sound one: 00-<32 hex>-<16 hex>-<2 hex>.
std::string Traceparent(const grpc::CallbackServerContext& context) {
  const auto it = context.client_metadata().find("traceparent");
  if (it == context.client_metadata().end()) return {};
  const std::string value(it->second.data(), it->second.size());
  if (value.size() != 55 || value[2] != '-' || value[35] != '-' || value[52] != '-') return {};
  for (size_t i = 0; i < value.size(); ++i) {
    const bool is_hex = absl::ascii_isxdigit(value[i]) && !absl::ascii_isupper(value[i]);
    if (i != 2 && i != 35 && i != 52 && !is_hex) return {};
  }
  return value;
}

template <typename Request, typename Handler>
grpc::Status Handle(const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response, const Handler& handler) {
  Request request;
  if (const absl::Status status = rpc::ParseMessage(bytes, request); !status.ok()) return rpc::ToGrpc(status);
  const auto answer = handler(request);
  if (!answer.ok()) return rpc::ToGrpc(answer.status());
  using Response = std::decay_t<decltype(*answer)>;
  bool owns_buffer;
  return grpc::SerializationTraits<Response>::Serialize(*answer, response, &owns_buffer);
}

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

}  // namespace

GenerationService::GenerationService(GenerationServiceParts parts)
    : proposers_(std::move(parts.proposers)),
      call_context_{.model = std::move(parts.model),
                    .engine = std::move(parts.engine),
                    .publisher = parts.publisher,
                    .metrics = parts.metrics,
                    .draw_bits =
                        [this, draw = std::move(parts.draw_bits)] {
                          absl::MutexLock lock(&draw_mutex_);
                          return draw();
                        }},
      work_queue_(kNumWorkers) {}

bool GenerationService::WaitUntilIdle(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto is_idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_.empty(); };
  return mutex_.AwaitWithTimeout(absl::Condition(&is_idle), timeout);
}

void GenerationService::AbortAll() {
  absl::MutexLock lock(&mutex_);
  for (const Ticket ticket : running_) call_context_.engine.abort(ticket);
}

void GenerationService::FailAll(const absl::Status& status) {
  std::vector<SampleOutput> errors;
  {
    absl::MutexLock lock(&mutex_);
    for (const Ticket ticket : running_) errors.push_back({.ticket = ticket, .error = status});
  }
  call_context_.publisher->Publish(std::move(errors));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::Generate(grpc::CallbackServerContext* context,
                                                                        const grpc::ByteBuffer* request) {
  const Ticket ticket = next_ticket_.fetch_add(1);
  {
    absl::MutexLock lock(&mutex_);
    running_.insert(ticket);
  }
  std::shared_ptr<GenerateCall> call = GenerateCall::Make(&call_context_, ticket, [this, ticket] {
    absl::MutexLock lock(&mutex_);
    running_.erase(ticket);
  });
  GenerateCall* const reactor = call.get();
  absl::StatusOr<QueuePlace> place = call_context_.engine.reserve();
  if (!place.ok()) {
    call->Fail(place.status());
    return reactor;
  }
  work_queue_.Push(
      [call = std::move(call), place = *std::move(place), bytes = *request,
       traceparent = Traceparent(*context)]() mutable { call->Start(std::move(place), bytes, traceparent); });
  return reactor;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* GenerationService::Answer(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
    absl::StatusOr<Response> (GenerationService::*method)(const Request&)) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(
      Handle<Request>(*request, response, [&](const Request& message) { return (this->*method)(message); }));
  return reactor;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* GenerationService::AnswerLater(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
    absl::StatusOr<Response> (GenerationService::*method)(const Request&)) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::StatusOr<QueuePlace> place = call_context_.engine.reserve();
  if (!place.ok()) {
    reactor->Finish(rpc::ToGrpc(place.status()));
    return reactor;
  }
  work_queue_.Push(
      [this, method, reactor, response, bytes = *request, place = std::optional(*std::move(place))]() mutable {
        const grpc::Status status =
            Handle<Request>(bytes, response, [&](const Request& message) { return (this->*method)(message); });
        place.reset();  // before the client can know, so that it may call again at once
        reactor->Finish(status);
      });
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Abort(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Answer<v1::AbortRequest, v1::AbortResponse>(context, request, response, &GenerationService::Abort);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return AnswerLater<v1::TokenizeRequest, v1::TokenizeResponse>(context, request, response,
                                                                &GenerationService::Tokenize);
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return AnswerLater<v1::DetokenizeRequest, v1::DetokenizeResponse>(context, request, response,
                                                                    &GenerationService::Detokenize);
}

grpc::ServerUnaryReactor* GenerationService::GetModelInfo(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Answer<v1::GetModelInfoRequest, v1::GetModelInfoResponse>(context, request, response,
                                                                   &GenerationService::GetModelInfo);
}

absl::StatusOr<v1::AbortResponse> GenerationService::Abort(const v1::AbortRequest& request) {
  if (request.request_id().empty()) {
    return absl::InvalidArgumentError("request_id: expected the id of a request, got none");
  }
  v1::AbortResponse response;
  response.set_aborted(call_context_.engine.abort_by_id(request.request_id()));
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
