// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/peek_field.h"

#include <algorithm>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace foretoken::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Skips the value of a field. Groups are not read, because no message of ours has one.
bool SkipValue(uint32_t tag, CodedInputStream& input) {
  const WireFormatLite::WireType type = WireFormatLite::GetTagWireType(tag);
  if (type == WireFormatLite::WIRETYPE_START_GROUP || type == WireFormatLite::WIRETYPE_END_GROUP) return false;
  return WireFormatLite::SkipField(&input, tag);
}

}  // namespace

std::string PeekString(const grpc::ByteBuffer& bytes, const PeekedField& field) {
  grpc::ByteBuffer same = bytes;  // the reader wants a buffer that it may change; the slices are shared
  grpc::ProtoBufferReader reader(&same);
  std::string value;
  if (!reader.status().ok()) return value;
  CodedInputStream input(&reader);
  const uint32_t wanted = WireFormatLite::MakeTag(field.number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  for (int i = 0; i < kMaxPeekedFields; ++i) {
    const uint32_t tag = input.ReadTag();
    uint32_t num_bytes = 0;
    if (tag == wanted) {
      if (!input.ReadVarint32(&num_bytes)) break;
      const uint32_t num_read = std::min(num_bytes, static_cast<uint32_t>(field.max_bytes));
      if (!input.ReadString(&value, static_cast<int>(num_read))) return {};
      if (!input.Skip(static_cast<int>(num_bytes - num_read))) break;
    } else if (tag == 0 || !SkipValue(tag, input)) {
      break;
    }
  }
  return value;
}

std::optional<uint64_t> PeekNumber(const grpc::ByteBuffer& bytes, const PeekedField& message, int number) {
  const std::string inner = PeekString(bytes, message);
  CodedInputStream input(reinterpret_cast<const uint8_t*>(inner.data()), static_cast<int>(inner.size()));
  const uint32_t wanted = WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_VARINT);
  std::optional<uint64_t> value;
  for (int i = 0; i < kMaxPeekedFields; ++i) {
    const uint32_t tag = input.ReadTag();
    uint64_t found = 0;
    if (tag == wanted) {
      if (!input.ReadVarint64(&found)) break;
      value = found;
    } else if (tag == 0 || !SkipValue(tag, input)) {
      break;
    }
  }
  return value;
}

}  // namespace foretoken::rpc
