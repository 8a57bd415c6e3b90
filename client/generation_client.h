// SPDX-License-Identifier: Apache-2.0
// A client of foretoken.v1.GenerationService.
//
//   FT_ASSIGN_OR_RETURN(GenerationClient client, GenerationClient::Connect({.target = "localhost:50051"}));
//   foretoken::v1::GenerateRequest request;
//   request.set_text("def main():");
//   FT_ASSIGN_OR_RETURN(Generation generation, client.Generate(request));
//   puts(generation.samples[0].text.c_str());
//
// Errors: the server's own status; UNAVAILABLE names the target if no server answers; CANCELLED after Cancel, and never
// without it.
// Threads: any; calls do not wait for one another.
#pragma once

#include <grpcpp/channel.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cancellation.h"
#include "client/generation.h"
#include "common/rpc/tls.h"
#include "foretoken/v1/generation.grpc.pb.h"

namespace foretoken::client {

// Pairs of a lower-case key and a value.
using Metadata = std::vector<std::pair<std::string, std::string>>;

struct ConnectOptions {
  std::string target = "localhost:50051";  // any gRPC name: host:port, dns:///, unix:
  int32_t connect_timeout_ms = 10'000;
  // Connect calls this once if the connection takes more than 200 ms.
  std::function<void()> on_slow_connect = nullptr;
  std::optional<int64_t> call_timeout_ms = std::nullopt;  // for every call, its whole stream included; unset: none
  int32_t keepalive_ms = 30'000;                          // the client pings a silent connection after this time
  Metadata metadata = {};                                 // of every call
  rpc::TlsFiles tls = {};
  std::string service_config = {};             // gRPC's, in JSON, for example with a policy for retries
  bool is_secure = false;                      // TLS with the system's authorities, if `tls` names no files
  const Cancellation* cancellation = nullptr;  // of the wait for the connection
};

class GenerationClient {
 public:
  // Waits for the connection. UNAVAILABLE names the target if there is none within connect_timeout_ms. CANCELLED: the
  // cancellation ended the wait. INVALID_ARGUMENT names a TLS file that cannot be used.
  static absl::StatusOr<GenerationClient> Connect(const ConnectOptions& options);

  // Called for each message as it arrives. If it returns false, the client cancels the call.
  using OnResponse = absl::FunctionRef<bool(const foretoken::v1::GenerateResponse&)>;
  // Also returns OK if on_response ended the call.
  absl::Status Generate(const foretoken::v1::GenerateRequest& request, OnResponse on_response,
                        Cancellation* cancellation = nullptr);
  // Returns the whole output. Errors: as GenerateTimed.
  absl::StatusOr<Generation> Generate(const foretoken::v1::GenerateRequest& request,
                                      Cancellation* cancellation = nullptr);

  // Returns whether the tenant had a running request with this id.
  absl::StatusOr<bool> Abort(const std::string& request_id, const std::string& tenant = "");
  absl::StatusOr<foretoken::v1::TokenizeResponse> Tokenize(const foretoken::v1::TokenizeRequest& request);
  absl::StatusOr<foretoken::v1::DetokenizeResponse> Detokenize(const foretoken::v1::DetokenizeRequest& request);
  absl::StatusOr<foretoken::v1::GetModelInfoResponse> GetModelInfo(
      const foretoken::v1::GetModelInfoRequest& request = {});

 private:
  GenerationClient(const std::shared_ptr<grpc::Channel>& channel, const ConnectOptions& options);
  void SetUp(grpc::ClientContext& context) const;

  using Stub = foretoken::v1::GenerationService::Stub;
  template <typename Request, typename Response>
  using UnaryMethod = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(UnaryMethod<Request, Response> method, const Request& request);

  std::unique_ptr<Stub> stub_;
  std::optional<int64_t> call_timeout_ms_;
  Metadata metadata_;
};

}  // namespace foretoken::client
