// SPDX-License-Identifier: Apache-2.0
#include "client/generation_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/timed_generation.h"
#include "common/base/status_macros.h"
#include "common/rpc/compression.h"
#include "common/rpc/status.h"

namespace foretoken::client {
namespace {

// Messages of Generate are below 2 MiB. The tokens of a text of 4 MiB take at most 28 MiB with their bytes.
constexpr int kMaxReceiveBytes = 64 << 20;

}  // namespace

using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;

namespace {

constexpr int32_t kSlowConnectMs = 200;
constexpr std::chrono::milliseconds kLookForCancellation{100};  // between looks while it waits for a connection

// What gRPC found out when it last tried to connect, for example "ipv4:127.0.0.1:50051: Connection refused". gRPC
// reports it only in the status of a failed call, so this makes one. Empty: nothing is known.
std::string LastConnectError(const std::shared_ptr<grpc::Channel>& channel) {
  const std::string mark = "last error: ";
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(kSlowConnectMs));
  foretoken::v1::GetModelInfoResponse response;
  const grpc::Status status = foretoken::v1::GenerationService::NewStub(channel)->GetModelInfo(&context, {}, &response);
  const std::string& message = status.error_message();
  const size_t place = message.find(mark);
  if (place == std::string::npos) return status.error_code() == grpc::StatusCode::UNAVAILABLE ? message : "";
  return message.substr(place + mark.size());
}

// The status of a call that has ended. CANCELLED stands for this client's own Cancel. A server cancels, too: gRPC does
// so to a call that crosses the end of its connection.
absl::Status StatusOf(const grpc::Status& end, const Cancellation* cancellation) {
  absl::Status status = rpc::FromGrpc(end);
  if (!absl::IsCancelled(status) || (cancellation != nullptr && cancellation->cancelled())) return status;
  return absl::UnavailableError(absl::StrCat("the server cancelled the call: ", status.message()));
}

}  // namespace

absl::StatusOr<GenerationClient> GenerationClient::Connect(const ConnectOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  for (const auto& [name, value] : rpc::kNoCompression) arguments.SetInt(name, value);
  arguments.SetMaxSendMessageSize(-1);  // the server limits the length of a prompt
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0: no limit. A call may wait in a queue for long
  if (!options.service_config.empty()) arguments.SetServiceConfigJSON(options.service_config);
  // Without TLS a proxy would read the token and the prompts, even of calls to this machine.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, options.is_secure || options.tls.is_used() ? 1 : 0);
  FT_ASSIGN_OR_RETURN(const auto credentials, rpc::ChannelCredentials(options.tls, options.is_secure));
  auto channel = grpc::CreateCustomChannel(options.target, credentials, arguments);
  const auto begin = std::chrono::system_clock::now();
  const auto is_cancelled = [&] { return options.cancellation != nullptr && options.cancellation->cancelled(); };
  const auto stands_after = [&](int32_t ms) {
    const auto end = begin + std::chrono::milliseconds(ms);
    for (bool is_last = false; !is_last && !is_cancelled();) {
      const auto slice_end = std::chrono::system_clock::now() + kLookForCancellation;
      is_last = slice_end >= end;
      if (channel->WaitForConnected(std::min(slice_end, end))) return true;
    }
    return false;
  };
  bool stands = stands_after(std::min(kSlowConnectMs, options.connect_timeout_ms));
  if (!stands && options.connect_timeout_ms > kSlowConnectMs) {
    if (options.on_slow_connect) options.on_slow_connect();
    stands = stands_after(options.connect_timeout_ms);
  }
  if (is_cancelled()) return absl::CancelledError("interrupted");
  if (!stands) {
    const std::string reason = LastConnectError(channel);
    return absl::UnavailableError(absl::StrCat("no server answers at ", options.target, " within ",
                                               options.connect_timeout_ms, " ms",
                                               reason.empty() ? "" : absl::StrCat(" (", reason, ")")));
  }
  return GenerationClient(channel, options);
}

GenerationClient::GenerationClient(const std::shared_ptr<grpc::Channel>& channel, const ConnectOptions& options)
    : stub_(foretoken::v1::GenerationService::NewStub(channel)),
      call_timeout_ms_(options.call_timeout_ms),
      metadata_(options.metadata) {}

void GenerationClient::SetUp(grpc::ClientContext& context) const {
  for (const auto& [key, value] : metadata_) context.AddMetadata(key, value);
  if (!call_timeout_ms_.has_value()) return;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(*call_timeout_ms_));
}

absl::Status GenerationClient::Generate(const GenerateRequest& request, OnResponse on_response,
                                        Cancellation* cancellation) {
  grpc::ClientContext context;
  SetUp(context);
  ScopedCancellable cancellable(context, cancellation);
  auto reader = stub_->Generate(&context, request);
  GenerateResponse response;
  while (reader->Read(&response)) {
    if (on_response(response)) continue;
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    reader->Finish();
    return absl::OkStatus();
  }
  return StatusOf(reader->Finish(), cancellation);
}

absl::StatusOr<Generation> GenerationClient::Generate(const GenerateRequest& request, Cancellation* cancellation) {
  TimedGeneration timed = GenerateTimed(
      *this, request, [](const GenerateResponse&) {}, cancellation);
  FT_RETURN_IF_ERROR(timed.status);
  return std::move(timed.generation);
}

template <typename Request, typename Response>
absl::StatusOr<Response> GenerationClient::Call(UnaryMethod<Request, Response> method, const Request& request) {
  grpc::ClientContext context;
  SetUp(context);
  Response response;
  const grpc::Status status = ((*stub_).*method)(&context, request, &response);
  if (!status.ok()) return StatusOf(status, /*cancellation=*/nullptr);
  return response;
}

absl::StatusOr<bool> GenerationClient::Abort(const std::string& request_id, const std::string& tenant) {
  foretoken::v1::AbortRequest request;
  request.set_request_id(request_id);
  request.set_tenant(tenant);
  FT_ASSIGN_OR_RETURN(foretoken::v1::AbortResponse response, Call(&Stub::Abort, request));
  return response.aborted();
}

absl::StatusOr<foretoken::v1::TokenizeResponse> GenerationClient::Tokenize(
    const foretoken::v1::TokenizeRequest& request) {
  return Call(&Stub::Tokenize, request);
}

absl::StatusOr<foretoken::v1::DetokenizeResponse> GenerationClient::Detokenize(
    const foretoken::v1::DetokenizeRequest& request) {
  return Call(&Stub::Detokenize, request);
}

absl::StatusOr<foretoken::v1::GetModelInfoResponse> GenerationClient::GetModelInfo(
    const foretoken::v1::GetModelInfoRequest& request) {
  return Call(&Stub::GetModelInfo, request);
}

}  // namespace foretoken::client
