// SPDX-License-Identifier: Apache-2.0
// Bytes off the wire to a message, with errors that a client can act on. gRPC's own answer to a message that does not
// parse is INTERNAL without a word; a string that is not UTF-8 is the usual reason, and the client's to mend.
//
//   v1::GenerateRequest request;
//   FT_RETURN_IF_ERROR(ParseMessage(buffer, request));
//   // INVALID_ARGUMENT "stopping.stop_strings[1]: expected UTF-8, got another byte sequence"
//
// Errors: INVALID_ARGUMENT. Messages are read to the depth of 100 that Protocol Buffers allows.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace foretoken::rpc {

absl::Status ParseMessage(const grpc::ByteBuffer& buffer, google::protobuf::Message& message);
absl::Status ParseMessage(absl::string_view bytes, google::protobuf::Message& message);

// The path of the first string field, in the order of the bytes, that is not UTF-8. Nothing where all are, or where the
// bytes are no such message at all.
std::optional<std::string> FindInvalidUtf8(absl::string_view bytes, const google::protobuf::Descriptor& descriptor);

}  // namespace foretoken::rpc
