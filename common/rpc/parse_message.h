// SPDX-License-Identifier: Apache-2.0
// Parses the bytes of a message, with errors that a client can act on. gRPC's own answer to a message that does not
// parse is INTERNAL without a reason. The usual reason is a string that is not UTF-8, and only the client can correct
// it.
//
//   v1::GenerateRequest request;
//   FT_RETURN_IF_ERROR(ParseMessage(buffer, bounds, request));
//   // INVALID_ARGUMENT "stopping.stop_strings[1]: expected UTF-8, got another byte sequence"
//
// Errors: INVALID_ARGUMENT, for a call without a message, for a message that breaks the bounds (message_bounds.h), and
// for bytes that do not parse.
// Messages are read to the depth of 100 that Protocol Buffers allows.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/rpc/message_bounds.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace foretoken::rpc {

absl::Status ParseMessage(const grpc::ByteBuffer& buffer, const MessageBounds& bounds,
                          google::protobuf::Message& message);
absl::Status ParseMessage(absl::string_view bytes, const MessageBounds& bounds, google::protobuf::Message& message);

// Takes the bytes of a request from gRPC, which would keep them until the call's end.
grpc::ByteBuffer TakeBytes(const grpc::ByteBuffer& request);

// The bytes of a message of ours.
grpc::ByteBuffer ToBytes(const google::protobuf::Message& message);

}  // namespace foretoken::rpc
