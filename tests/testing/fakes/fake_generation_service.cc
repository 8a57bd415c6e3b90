// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fakes/fake_generation_service.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace foretoken::testing {

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;

FakeGenerationService::FakeGenerationService(int port) : script_(GenerateFromPrompt) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1);  // tests ping often
  server_ = builder.BuildAndStart();
  FT_CHECK(server_ != nullptr);
  server_->GetHealthCheckService()->SetServingStatus("foretoken.v1.GenerationService", true);
}

FakeGenerationService::~FakeGenerationService() { server_->Shutdown(std::chrono::system_clock::now()); }

std::string FakeGenerationService::target() const { return absl::StrCat("127.0.0.1:", port_); }

void FakeGenerationService::set_script(GenerateScript script) {
  absl::MutexLock lock(&mutex_);
  script_ = std::move(script);
}

std::vector<GenerateRequest> FakeGenerationService::requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

grpc::Status FakeGenerationService::Generate(grpc::ServerContext* context, const GenerateRequest* request,
                                             grpc::ServerWriter<GenerateResponse>* writer) {
  GenerateScript script;
  {
    absl::MutexLock lock(&mutex_);
    requests_.push_back(*request);
    script = script_;
    const std::string& id = request->request_id();
    if (keeps_requests_ && !id.empty() && !kept_ids_.insert(id).second) {
      return {grpc::StatusCode::ALREADY_EXISTS, absl::StrCat("request_id: ", id, " is in use")};
    }
  }
  return script(*request, *context, [writer](const GenerateResponse& response) { return writer->Write(response); });
}

grpc::Status FakeGenerationService::Abort(grpc::ServerContext* /*context*/, const foretoken::v1::AbortRequest* request,
                                          foretoken::v1::AbortResponse* response) {
  absl::MutexLock lock(&mutex_);
  const bool is_kept = kept_ids_.erase(request->request_id()) > 0;
  response->set_aborted(is_kept || (request->request_id() == "running" && request->tenant().empty()));
  return grpc::Status::OK;
}

grpc::Status FakeGenerationService::Tokenize(grpc::ServerContext* /*context*/,
                                             const foretoken::v1::TokenizeRequest* request,
                                             foretoken::v1::TokenizeResponse* response) {
  for (const char byte : request->text()) {
    response->add_token_ids(static_cast<unsigned char>(byte));
    response->add_token_bytes(std::string(1, byte));
  }
  return grpc::Status::OK;
}

grpc::Status FakeGenerationService::Detokenize(grpc::ServerContext* /*context*/,
                                               const foretoken::v1::DetokenizeRequest* request,
                                               foretoken::v1::DetokenizeResponse* response) {
  for (const uint32_t id : request->token_ids()) {
    if (id > 127)
      return {grpc::StatusCode::INVALID_ARGUMENT, absl::StrCat("token_ids: expected at most 127, got ", id)};
    response->mutable_text()->push_back(static_cast<char>(id));
    response->add_token_bytes(std::string(1, static_cast<char>(id)));
  }
  return grpc::Status::OK;
}

grpc::Status FakeGenerationService::GetModelInfo(grpc::ServerContext* /*context*/,
                                                 const foretoken::v1::GetModelInfoRequest* /*request*/,
                                                 foretoken::v1::GetModelInfoResponse* response) {
  response->set_model("fake");
  response->set_architecture("EchoForCausalLM");
  response->set_num_parameters(1'500'000);
  response->set_vocabulary_size(256);
  response->set_max_context_tokens(1024);
  response->add_end_token_ids(0);
  response->mutable_default_sampling()->set_temperature(0.5F);
  foretoken::v1::ProposerInfo& proposer = *response->add_proposers();
  proposer.set_proposer("ngram");
  proposer.set_num_connected(2);
  response->set_max_tree_nodes(64);
  response->set_version("0.0.0-fake");
  response->set_has_chat_template(has_chat_template_);
  foretoken::v1::WeightInfo& weights = *response->mutable_weights();
  weights.add_formats("Q4_0");
  weights.set_numeric_mode("cpu/fake w4a16-g32");
  weights.set_bits_per_weight(4.5);
  weights.set_bytes_per_step(500'000'000);
  weights.set_read_bytes_per_second(20e9);
  weights.set_max_plain_tokens_per_second(40);
  return grpc::Status::OK;
}

namespace {

void Complete(const GenerateRequest& request, uint32_t num_tokens, bool is_speculative, GenerateResponse& response) {
  foretoken::v1::Completion& completion = *response.mutable_completion();
  completion.set_finish_reason(foretoken::v1::FINISH_REASON_LENGTH);
  completion.set_seed(request.sampling().seed());
  completion.set_numerics_fingerprint("fake");
  foretoken::v1::Usage& usage = *completion.mutable_usage();
  usage.set_prompt_tokens(request.text().size());
  usage.set_completion_tokens(num_tokens);
  usage.set_steps(is_speculative ? (num_tokens + 1) / 2 : num_tokens);
  if (!is_speculative) return;
  foretoken::v1::ProposerUsage& proposer = *usage.add_proposers();
  proposer.set_proposer("ngram");
  proposer.set_proposed_tokens(num_tokens);
  proposer.set_accepted_tokens(num_tokens / 2);
}

}  // namespace

grpc::Status GenerateFromPrompt(const GenerateRequest& request, grpc::ServerContext& /*context*/,
                                const std::function<bool(const GenerateResponse&)>& write) {
  const bool is_chat = request.chat().messages_size() > 0;
  const std::string prompt =
      is_chat ? request.chat().messages(request.chat().messages_size() - 1).content() : request.text();
  if (prompt.empty()) return {grpc::StatusCode::INVALID_ARGUMENT, "text: expected a prompt, got none"};
  if (request.sampling().temperature() < 0) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "sampling.temperature: expected at least 0"};
  }
  const bool is_speculative = request.speculation().mode() != foretoken::v1::SPECULATION_MODE_OFF;
  const uint32_t num_tokens = request.stopping().has_max_tokens() ? request.stopping().max_tokens() : 16;
  const uint32_t num_samples = std::max(1U, request.sampling().n());
  for (uint32_t begin = 0, length = 0; begin < num_tokens; begin += length) {
    length = std::min(is_speculative ? 2U : 1U, num_tokens - begin);
    for (uint32_t sample = 0; sample < num_samples; ++sample) {
      GenerateResponse response;
      response.set_request_id(request.request_id().empty() ? "fake-1" : request.request_id());
      response.set_sample_index(sample);
      for (uint32_t i = begin; i < begin + length; ++i) {
        const char byte = prompt[i % prompt.size()];
        response.mutable_text()->push_back(byte);
        response.add_token_ids(static_cast<unsigned char>(byte));
        response.add_speculated(i > begin);
        response.add_text_ends(i + 1);
      }
      if (begin + length == num_tokens) Complete(request, num_tokens, is_speculative, response);
      if (!write(response)) return grpc::Status::CANCELLED;
    }
  }
  return grpc::Status::OK;
}

GenerateScript CutOff(foretoken::v1::FinishReason reason) {
  return [reason](const GenerateRequest& request, grpc::ServerContext& context, const auto& write) {
    GenerateRequest shorter = request;
    shorter.mutable_stopping()->set_max_tokens(2);
    return GenerateFromPrompt(shorter, context, [&](GenerateResponse response) {
      if (response.has_completion()) response.mutable_completion()->set_finish_reason(reason);
      return write(response);
    });
  };
}

}  // namespace foretoken::testing
