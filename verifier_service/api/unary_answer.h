// SPDX-License-Identifier: Apache-2.0
// Answers calls with one request and one response, as bytes on both sides, so that the error for an unreadable message
// can name the field.
//
//   return AnswerUnary<v1::AbortRequest>(
//       calls, {.rpc = {"Abort"}, .context = context, .request = request, .response = response, .bounds =
//       &bounds.abort},
//       [&](const v1::AbortRequest& message) -> absl::StatusOr<v1::AbortResponse> { ... });
//
// Errors: UNAUTHENTICATED without a token, INVALID_ARGUMENT for bytes out of bounds, and those of the handler.
#pragma once

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "verifier_service/api/generate_calls.h"

namespace foretoken::verifier {

struct UnaryCall {
  RpcName rpc;  // for metrics
  grpc::CallbackServerContext* context = nullptr;
  const grpc::ByteBuffer* request = nullptr;
  grpc::ByteBuffer* response = nullptr;
  const rpc::MessageBounds* bounds = nullptr;
};

// Finishes the call and counts it.
inline void FinishUnary(const GenerateCalls& calls, const UnaryCall& call, const absl::Status& status,
                        grpc::ServerUnaryReactor* reactor) {
  calls.metrics().CountCall(call.rpc, status);
  rpc::AddPushback(status, *call.context);
  reactor->Finish(rpc::ToGrpc(status));
}

// Parses the bytes, calls the handler, and serializes its answer.
template <typename Request, typename Handler>
absl::Status HandleUnary(const UnaryCall& call, const grpc::ByteBuffer& bytes, const Handler& handle) {
  Request message;
  FT_RETURN_IF_ERROR(rpc::ParseMessage(bytes, *call.bounds, message));
  FT_ASSIGN_OR_RETURN(const auto answer, handle(message));
  *call.response = rpc::ToBytes(answer);
  return absl::OkStatus();
}

// Answers on the caller's thread.
template <typename Request, typename Handler>
grpc::ServerUnaryReactor* AnswerUnary(const GenerateCalls& calls, const UnaryCall& call, const Handler& handle) {
  grpc::ServerUnaryReactor* const reactor = call.context->DefaultReactor();
  absl::Status status = calls.CheckClient(*call.context);
  if (status.ok()) status = HandleUnary<Request>(call, *call.request, handle);
  FinishUnary(calls, call, status, reactor);
  return reactor;
}

}  // namespace foretoken::verifier
