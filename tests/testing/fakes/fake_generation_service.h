// SPDX-License-Identifier: Apache-2.0
// A GenerationService on a loopback port, with health checks. It answers from a script and records requests. Without a
// script its output is a function of the prompt, so that equal requests give equal tokens.
//
//   FakeGenerationService service;
//   GenerationClient::Connect({.target = service.target()})
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "foretoken/v1/generation.grpc.pb.h"

namespace foretoken::testing {

// Writes the stream of one Generate call. `write` returns false if the client is gone.
using GenerateScript =
    std::function<grpc::Status(const foretoken::v1::GenerateRequest& request, grpc::ServerContext& context,
                               const std::function<bool(const foretoken::v1::GenerateResponse&)>& write)>;

class FakeGenerationService final : public foretoken::v1::GenerationService::Service {
 public:
  // Serves at 127.0.0.1:`port`; 0 takes a free one.
  explicit FakeGenerationService(int port = 0);
  ~FakeGenerationService() override;

  std::string target() const;
  void set_script(GenerateScript script);
  // Whether a request with an id runs on until Abort, also if its client cancels it.
  void set_keeps_requests(bool keeps) { keeps_requests_ = keeps; }
  void set_has_chat_template(bool has) { has_chat_template_ = has; }
  std::vector<foretoken::v1::GenerateRequest> requests() const;

  grpc::Status Generate(grpc::ServerContext* context, const foretoken::v1::GenerateRequest* request,
                        grpc::ServerWriter<foretoken::v1::GenerateResponse>* writer) override;
  grpc::Status Abort(grpc::ServerContext* context, const foretoken::v1::AbortRequest* request,
                     foretoken::v1::AbortResponse* response) override;
  // Makes one token per byte, with the byte's value as id.
  grpc::Status Tokenize(grpc::ServerContext* context, const foretoken::v1::TokenizeRequest* request,
                        foretoken::v1::TokenizeResponse* response) override;
  grpc::Status Detokenize(grpc::ServerContext* context, const foretoken::v1::DetokenizeRequest* request,
                          foretoken::v1::DetokenizeResponse* response) override;
  grpc::Status GetModelInfo(grpc::ServerContext* context, const foretoken::v1::GetModelInfoRequest* request,
                            foretoken::v1::GetModelInfoResponse* response) override;

 private:
  mutable absl::Mutex mutex_;
  GenerateScript script_;
  std::vector<foretoken::v1::GenerateRequest> requests_;
  std::set<std::string> kept_ids_;
  std::atomic<bool> keeps_requests_ = false;
  std::atomic<bool> has_chat_template_ = true;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Repeats the bytes of the prompt, or of a conversation's last message, up to max_tokens (16 by default), one token per
// byte. With speculation a message has two tokens, and the second is marked as speculated. Without speculation a
// message has one token.
grpc::Status GenerateFromPrompt(const foretoken::v1::GenerateRequest& request, grpc::ServerContext& context,
                                const std::function<bool(const foretoken::v1::GenerateResponse&)>& write);

// As GenerateFromPrompt, but the server ends each request after two tokens, with this reason.
GenerateScript CutOff(foretoken::v1::FinishReason reason);

}  // namespace foretoken::testing
