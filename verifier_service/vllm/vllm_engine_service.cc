// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/vllm/vllm_engine_service.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "common/base/version.h"
#include "common/rpc/call_names.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/peek_field.h"
#include "common/rpc/status.h"
#include "verifier_service/api/unary_answer.h"
#include "verifier_service/vllm/answer_translation.h"
#include "verifier_service/vllm/tokenizer_stream.h"

namespace foretoken::verifier {
namespace {

constexpr char kApi[] = "vllm";  // in metrics
constexpr const char* kMethods[] = {"Generate",      "Abort",    "HealthCheck", "GetModelInfo",
                                    "GetServerInfo", "GetLoads", "GetTokenizer"};

double SecondsSince1970() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

// A Generate call in the contract's messages.
class TranslatedFormat : public CallFormat {
 public:
  TranslatedFormat(std::shared_ptr<const EngineApiBounds> bounds, const ServedModel& model)
      : bounds_(std::move(bounds)), model_(model) {}

  RequestName PeekName(const grpc::ByteBuffer& bytes) const override {
    constexpr int kRequestId = engine_api::GenerateRequest::kRequestIdFieldNumber;
    return {.request_id = rpc::PeekString(bytes, {.number = kRequestId, .max_bytes = kMaxNameBytes})};
  }
  std::optional<uint64_t> PeekNumSamples(const grpc::ByteBuffer& bytes) const override {
    constexpr rpc::PeekedField kParams = {.number = engine_api::GenerateRequest::kSamplingParamsFieldNumber,
                                          .max_bytes = kMaxPeekedOptionBytes};
    return rpc::PeekNumber(bytes, kParams, engine_api::SamplingParams::kNFieldNumber);
  }
  absl::StatusOr<v1::GenerateRequest> Read(const grpc::ByteBuffer& bytes) override {
    engine_api::GenerateRequest message;
    FT_RETURN_IF_ERROR(rpc::ParseMessage(bytes, bounds_->generate, message));
    streams_ = message.stream();
    return ToOurs(std::move(message), model_);
  }
  bool streams() const override { return streams_; }
  absl::Status Explain(absl::Status error) const override { return InTheirWords(error); }
  void Accept(const GenerationRequest& request) override {
    AnswerOptions options = {.streams = streams_,
                             .num_samples = request.num_samples,
                             .num_prompt_tokens = static_cast<uint32_t>(request.prompt.size()),
                             .has_top_logprobs = request.output.num_logprobs > 0,
                             .has_prompt_top_logprobs = request.output.num_prompt_logprobs > 0};
    if (!request.stop.ignore_eos) options.end_token_ids = model_.end_token_ids;
    answers_.emplace(std::move(options));
  }
  void Write(v1::GenerateResponse response) override { answers_->Add(response); }
  std::optional<grpc::ByteBuffer> Take() override {
    const std::optional<engine_api::GenerateResponse> message = answers_->Take();
    return message ? std::optional(rpc::ToBytes(*message)) : std::nullopt;
  }
  size_t num_held_bytes() const override { return answers_->num_held_bytes(); }

 private:
  // Shared, because a request may still be read after its call has ended, and then the service may end.
  const std::shared_ptr<const EngineApiBounds> bounds_;
  const ServedModel& model_;
  bool streams_ = false;
  std::optional<AnswerTranslation> answers_;  // from Accept on
};

// The model's own sampling parameters as a JSON object. The contract's defaults are left out.
std::string DefaultsAsJson(const kernels::SamplingParams& defaults) {
  const kernels::SamplingParams neutral;
  std::vector<std::string> fields;
  const auto add = [&fields](const char* name, auto value, auto neutral_value) {
    if (value != neutral_value) fields.push_back(absl::StrCat("\"", name, "\":", value));
  };
  add("temperature", defaults.temperature, neutral.temperature);
  add("top_k", defaults.top_k, neutral.top_k);
  add("top_p", defaults.top_p, neutral.top_p);
  add("min_p", defaults.min_p, neutral.min_p);
  add("repetition_penalty", defaults.repetition_penalty, neutral.repetition_penalty);
  return absl::StrCat("{", absl::StrJoin(fields, ","), "}");
}

}  // namespace

VllmEngineService::VllmEngineService(VllmEngineServiceParts parts)
    : calls_(*parts.calls),
      bounds_(std::make_shared<const EngineApiBounds>(calls_.model())),
      parts_(std::move(parts)),
      started_at_(SteadyNow()),
      loads_({.stats = parts_.stats, .max_running_samples = parts_.max_running_samples}) {
  for (const char* method : kMethods) calls_.metrics().Announce({.rpc = method, .api = kApi});
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* VllmEngineService::Generate(grpc::CallbackServerContext* context,
                                                                        const grpc::ByteBuffer* request) {
  last_receive_timestamp_ = SecondsSince1970();
  return calls_.Start({.context = context,
                       .request = request,
                       .method = absl::StrCat(engine_api::VllmEngine::service_full_name(), "/Generate"),
                       .rpc = {.rpc = "Generate", .api = kApi},
                       .format = std::make_unique<TranslatedFormat>(bounds_, calls_.model())});
}

grpc::ServerUnaryReactor* VllmEngineService::Abort(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return AnswerUnary<engine_api::AbortRequest>(
      calls_,
      {.rpc = {.rpc = "Abort", .api = kApi},
       .context = context,
       .request = request,
       .response = response,
       .bounds = &bounds_->abort},
      [&](const engine_api::AbortRequest& message) -> absl::StatusOr<engine_api::AbortResponse> {
        FT_ASSIGN_OR_RETURN(const std::string tenant, rpc::TenantOf(rpc::NamesOf(context->client_metadata()), ""));
        return Abort(message, tenant);
      });
}

absl::StatusOr<engine_api::AbortResponse> VllmEngineService::Abort(const engine_api::AbortRequest& request,
                                                                   const std::string& tenant) {
  for (int i = 0; i < request.request_ids_size(); ++i) {
    if (request.request_ids(i).empty()) {
      return rpc::InvalidField(absl::StrCat("request_ids[", i, "]"), "expected the id of a request, got none");
    }
  }
  for (const std::string& id : request.request_ids()) calls_.Abort({.tenant = tenant, .request_id = id});
  return engine_api::AbortResponse();
}

grpc::ServerUnaryReactor* VllmEngineService::HealthCheck(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return AnswerUnary<engine_api::HealthCheckRequest>(
      calls_,
      {.rpc = {.rpc = "HealthCheck", .api = kApi},
       .context = context,
       .request = request,
       .response = response,
       .bounds = &bounds_->health_check},
      [&](const engine_api::HealthCheckRequest&) -> absl::StatusOr<engine_api::HealthCheckResponse> {
        engine_api::HealthCheckResponse answer;
        answer.set_healthy(parts_.is_healthy());
        answer.set_message(answer.healthy() ? "serving" : "draining, or a step of the engine does not end");
        return answer;
      });
}

grpc::ServerUnaryReactor* VllmEngineService::GetModelInfo(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return AnswerUnary<engine_api::GetModelInfoRequest>(
      calls_,
      {.rpc = {.rpc = "GetModelInfo", .api = kApi},
       .context = context,
       .request = request,
       .response = response,
       .bounds = &bounds_->get_model_info},
      [&](const engine_api::GetModelInfoRequest&) {
        return absl::StatusOr<engine_api::GetModelInfoResponse>(DescribeModel());
      });
}

engine_api::GetModelInfoResponse VllmEngineService::DescribeModel() const {
  const ServedModel& model = calls_.model();
  engine_api::GetModelInfoResponse info;
  info.set_model_path(model.name);
  info.set_is_generation(true);
  info.set_max_context_length(static_cast<uint32_t>(model.max_context_tokens));
  info.set_vocab_size(static_cast<uint32_t>(model.vocabulary_size));
  info.set_served_model_name(model.name);
  info.set_model_type(parts_.model_type);
  info.add_architectures(model.architecture);
  for (const int32_t id : model.end_token_ids) info.add_eos_token_ids(id);
  info.set_bos_token_id(parts_.bos_token_id);
  info.set_max_req_input_len(model.max_context_tokens - 1);
  info.set_default_sampling_params_json(DefaultsAsJson(model.default_sampling));
  return info;
}

grpc::ServerUnaryReactor* VllmEngineService::GetServerInfo(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  return AnswerUnary<engine_api::GetServerInfoRequest>(
      calls_,
      {.rpc = {.rpc = "GetServerInfo", .api = kApi},
       .context = context,
       .request = request,
       .response = response,
       .bounds = &bounds_->get_server_info},
      [&](const engine_api::GetServerInfoRequest&) {
        return absl::StatusOr<engine_api::GetServerInfoResponse>(DescribeServer());
      });
}

engine_api::GetServerInfoResponse VllmEngineService::DescribeServer() const {
  engine_api::GetServerInfoResponse info;
  info.set_active_requests(static_cast<uint32_t>(calls_.num_running()));
  info.set_last_receive_timestamp(last_receive_timestamp_);
  info.set_uptime_seconds(absl::ToDoubleSeconds(SteadyNow() - started_at_));
  info.set_server_type("foretoken");
  info.set_data_parallel_size(1);
  info.set_block_size(kernels::kKvBlockSize);
  info.set_max_num_seqs(parts_.max_running_samples);
  info.set_constrained_decoding_start("first_token");
  return info;
}

grpc::ServerUnaryReactor* VllmEngineService::GetLoads(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return AnswerUnary<engine_api::GetLoadsRequest>(
      calls_,
      {.rpc = {.rpc = "GetLoads", .api = kApi},
       .context = context,
       .request = request,
       .response = response,
       .bounds = &bounds_->get_loads},
      [&](const engine_api::GetLoadsRequest& message) {
        return absl::StatusOr<engine_api::GetLoadsResponse>(DescribeLoads(message));
      });
}

engine_api::GetLoadsResponse VllmEngineService::DescribeLoads(const engine_api::GetLoadsRequest& request) {
  engine_api::GetLoadsResponse loads;
  loads.set_timestamp(absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone()));
  loads.set_version(base::Version());
  loads.set_dp_rank_count(1);
  if (request.dp_rank() == 0) *loads.add_loads() = loads_.Report();
  return loads;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* VllmEngineService::GetTokenizer(grpc::CallbackServerContext* context,
                                                                            const grpc::ByteBuffer* request) {
  absl::Status status = calls_.CheckClient(*context);
  engine_api::GetTokenizerRequest message;
  if (status.ok()) status = rpc::ParseMessage(*request, bounds_->get_tokenizer, message);
  if (status.ok()) status = parts_.tokenizer.status();
  const Ticket ticket = calls_.NewTicket();
  return new TokenizerStream(
      {.archive = status.ok() ? absl::StatusOr<const TokenizerArchive*>(&*parts_.tokenizer) : status,
       .on_write = [=, this](const grpc::ByteBuffer& piece) { calls_.BeginAnswer(ticket, *context, piece); },
       .on_end =
           [this](const absl::Status& end) { calls_.metrics().CountCall({.rpc = "GetTokenizer", .api = kApi}, end); },
       .on_done = [this, ticket] { calls_.EndAnswer(ticket); }});
}

}  // namespace foretoken::verifier
