// SPDX-License-Identifier: Apache-2.0
// Bytes off the wire to a message, with errors that a client can act on. gRPC's own answer to a message that does not
// parse is INTERNAL without a word; a string that is not UTF-8 is the usual reason, and the client's to mend.
//
//   v1::GenerateRequest request;
//   FT_RETURN_IF_ERROR(ParseMessage(buffer, bounds, request));
//   // INVALID_ARGUMENT "stopping.stop_strings[1]: expected UTF-8, got another byte sequence"
//
// Errors: INVALID_ARGUMENT, for what the bounds (message_bounds.h) refuse and for bytes that do not parse. Messages are
// read to the depth of 100 that Protocol Buffers allows.
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

}  // namespace foretoken::rpc
