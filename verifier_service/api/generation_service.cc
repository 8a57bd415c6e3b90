// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/generation_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/call_names.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/peek_field.h"
#include "common/rpc/status.h"

namespace foretoken::verifier {
namespace {

constexpr int kNumLookupWorkers = 1;

// The protocol itself is the form.
class OwnFormat : public CallFormat {
 public:
  explicit OwnFormat(const RequestBounds& bounds) : bounds_(bounds) {}

  RequestName PeekName(const grpc::ByteBuffer& bytes) const override {
    const auto peek = [&](int number) {
      return rpc::PeekString(bytes, {.number = number, .max_bytes = kMaxNameBytes});
    };
    return {.tenant = peek(v1::GenerateRequest::kTenantFieldNumber),
            .request_id = peek(v1::GenerateRequest::kRequestIdFieldNumber)};
  }
  std::optional<uint64_t> PeekNumSamples(const grpc::ByteBuffer& bytes) const override {
    constexpr rpc::PeekedField kSampling = {.number = v1::GenerateRequest::kSamplingFieldNumber,
                                            .max_bytes = kMaxPeekedOptionBytes};
    return rpc::PeekNumber(bytes, kSampling, v1::SamplingOptions::kNFieldNumber);
  }
  absl::StatusOr<v1::GenerateRequest> Read(const grpc::ByteBuffer& bytes) override {
    v1::GenerateRequest message;
    FT_RETURN_IF_ERROR(rpc::ParseMessage(bytes, bounds_.generate, message));
    return message;
  }
  void Accept(const GenerationRequest&) override {}
  void Write(v1::GenerateResponse response) override { message_ = rpc::ToBytes(response); }
  std::optional<grpc::ByteBuffer> Take() override { return std::exchange(message_, std::nullopt); }
  size_t num_held_bytes() const override { return message_ ? message_->Length() : 0; }

 private:
  const RequestBounds& bounds_;
  std::optional<grpc::ByteBuffer> message_;
};

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
  LookupCall(GenerateCalls& calls, TenantQueue& queue, Ticket ticket, FinishWith finish)
      : calls_(calls), queue_(queue), ticket_(ticket), finish_(std::move(finish)) {}

 private:
  void OnCancel() override {
    if (queue_.Remove(ticket_)) finish_(absl::CancelledError("the client has gone"), this);
  }
  void OnDone() override {
    calls_.EndAnswer(ticket_);
    delete this;
  }

  GenerateCalls& calls_;
  TenantQueue& queue_;
  const Ticket ticket_;
  const FinishWith finish_;
};

}  // namespace

GenerationService::GenerationService(GenerationServiceParts parts)
    : calls_(*parts.calls),
      proposers_(std::move(parts.proposers)),
      lookups_(parts.max_lookups),
      lookup_queue_(kNumLookupWorkers) {}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::Generate(grpc::CallbackServerContext* context,
                                                                        const grpc::ByteBuffer* request) {
  return calls_.Start({.context = context,
                       .request = request,
                       .method = absl::StrCat(v1::GenerationService::service_full_name(), "/Generate"),
                       .rpc = {.rpc = "Generate"},
                       .format = std::make_unique<OwnFormat>(calls_.bounds())});
}

template <typename Request, typename Handler>
grpc::ServerUnaryReactor* GenerationService::LookUp(const UnaryCall& call, Handler handle) {
  const Ticket ticket = calls_.NewTicket();
  const auto finish = [this, call](const absl::Status& status, grpc::ServerUnaryReactor* reactor) {
    FinishUnary(calls_, call, status, reactor);
  };
  auto* const reactor = new LookupCall(calls_, lookup_queue_, ticket, finish);
  if (const absl::Status allowed = calls_.CheckClient(*call.context); !allowed.ok()) {
    finish(allowed, reactor);
    return reactor;
  }
  base::WorkPlaces::Place place = lookups_.Take();
  if (place == nullptr) {
    finish(base::Passing(base::WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                              "Tokenize and Detokenize: ", lookups_.most(), " calls are waiting")),
                                          "LOOKUPS_FULL")),
           reactor);
    return reactor;
  }
  lookup_queue_.Push({.ticket = ticket}, [this, call, handle, ticket, finish, reactor,
                                          bytes = rpc::TakeBytes(*call.request), place = std::move(place)]() mutable {
    const absl::Status status = HandleUnary<Request>(call, bytes, handle);
    place.reset();  // before the client sees the answer, so that it may call again at once
    if (status.ok()) calls_.BeginAnswer(ticket, *call.context, *call.response);
    finish(status, reactor);
  });
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Abort(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return AnswerUnary<v1::AbortRequest>(
      calls_,
      {.rpc = {"Abort"},
       .context = context,
       .request = request,
       .response = response,
       .bounds = &calls_.bounds().abort},
      [&](const v1::AbortRequest& message) -> absl::StatusOr<v1::AbortResponse> {
        if (message.request_id().empty()) {
          return rpc::InvalidField("request_id", "expected the id of a request, got none");
        }
        FT_ASSIGN_OR_RETURN(std::string tenant,
                            rpc::TenantOf(rpc::NamesOf(context->client_metadata()), message.tenant()));
        v1::AbortResponse answer;
        answer.set_aborted(calls_.Abort({.tenant = std::move(tenant), .request_id = message.request_id()}));
        return answer;
      });
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return LookUp<v1::TokenizeRequest>({.rpc = {"Tokenize"},
                                      .context = context,
                                      .request = request,
                                      .response = response,
                                      .bounds = &calls_.bounds().tokenize},
                                     [this](const v1::TokenizeRequest& message) { return Tokenize(message); });
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return LookUp<v1::DetokenizeRequest>({.rpc = {"Detokenize"},
                                        .context = context,
                                        .request = request,
                                        .response = response,
                                        .bounds = &calls_.bounds().detokenize},
                                       [this](const v1::DetokenizeRequest& message) { return Detokenize(message); });
}

grpc::ServerUnaryReactor* GenerationService::GetModelInfo(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return AnswerUnary<v1::GetModelInfoRequest>(
      calls_,
      {.rpc = {"GetModelInfo"},
       .context = context,
       .request = request,
       .response = response,
       .bounds = &calls_.bounds().get_model_info},
      [this](const v1::GetModelInfoRequest& message) { return GetModelInfo(message); });
}

absl::StatusOr<v1::TokenizeResponse> GenerationService::Tokenize(const v1::TokenizeRequest& request) {
  const ServedModel& model = calls_.model();
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
  const ServedModel& model = calls_.model();
  FT_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  FT_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, CheckTokenIds(request.token_ids(), "token_ids", model));
  const bool skip_special = !request.has_skip_special_tokens() || request.skip_special_tokens();
  v1::DetokenizeResponse response;
  FT_ASSIGN_OR_RETURN(*response.mutable_text(), model.tokenizer->Decode(ids, {.skip_special = skip_special}));
  for (const int32_t id : ids) response.add_token_bytes(model.tokenizer->vocabulary().Find(id)->bytes);
  return response;
}

v1::WeightInfo WeightInfoOf(const ServedModel& model) {
  v1::WeightInfo info;
  for (const std::string& format : model.weight_formats) info.add_formats(format);
  info.set_numeric_mode(model.numeric_mode);
  info.set_bits_per_weight(model.bits_per_weight);
  info.set_bytes_per_step(model.bytes_per_step);
  info.set_read_bytes_per_second(model.read_bytes_per_second);
  if (model.bytes_per_step > 0) {
    info.set_max_plain_tokens_per_second(model.read_bytes_per_second / static_cast<double>(model.bytes_per_step));
  }
  return info;
}

absl::StatusOr<v1::GetModelInfoResponse> GenerationService::GetModelInfo(const v1::GetModelInfoRequest& request) {
  const ServedModel& model = calls_.model();
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
  response.set_has_chat_template(model.chat_template != nullptr);
  *response.mutable_weights() = WeightInfoOf(model);
  return response;
}

}  // namespace foretoken::verifier
