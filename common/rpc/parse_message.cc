// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/parse_message.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "kernels/check.h"

namespace foretoken::rpc {

absl::Status ParseMessage(absl::string_view bytes, const MessageBounds& bounds, google::protobuf::Message& message) {
  // The bounds are checked first. A parsed message can be many times as large as its bytes, and the parser logs a
  // string that is not UTF-8, so a client could fill the disk.
  FT_RETURN_IF_ERROR(bounds.Check(bytes));
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return Malformed(*message.GetDescriptor(), bytes.size());
}

absl::Status ParseMessage(const grpc::ByteBuffer& buffer, const MessageBounds& bounds,
                          google::protobuf::Message& message) {
  grpc::Slice bytes;
  if (!buffer.DumpToSingleSlice(&bytes).ok()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a ", message.GetDescriptor()->full_name(), ", got none"));
  }
  return ParseMessage(absl::string_view(reinterpret_cast<const char*>(bytes.begin()), bytes.size()), bounds, message);
}

grpc::ByteBuffer TakeBytes(const grpc::ByteBuffer& request) {
  grpc::ByteBuffer bytes;
  bytes.Swap(const_cast<grpc::ByteBuffer*>(&request));  // gRPC made it for this call, and only destroys it
  return bytes;
}

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool owns_buffer;
  FT_CHECK(grpc::SerializationTraits<google::protobuf::Message>::Serialize(message, &bytes, &owns_buffer).ok());
  return bytes;
}

}  // namespace foretoken::rpc
