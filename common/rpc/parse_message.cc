// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/parse_message.h"

#include <utf8proc.h>

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace foretoken::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

constexpr int kMaxDepth = 100;

bool IsUtf8(absl::string_view text) {
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (auto left = static_cast<utf8proc_ssize_t>(text.size()); left > 0;) {
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t length = utf8proc_iterate(at, left, &code_point);
    if (length <= 0) return false;
    at += length;
    left -= length;
  }
  return true;
}

std::optional<std::string> FindInvalidUtf8(absl::string_view bytes, const Descriptor& descriptor, int depth) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  absl::flat_hash_map<const FieldDescriptor*, int> num_seen;
  while (const uint32_t tag = in.ReadTag()) {
    const FieldDescriptor* field = descriptor.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field == nullptr || WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&in, tag)) return std::nullopt;
      continue;
    }
    uint32_t length;
    if (!in.ReadVarint32(&length) || length > bytes.size() - in.CurrentPosition()) return std::nullopt;
    const absl::string_view value = bytes.substr(in.CurrentPosition(), length);
    if (!in.Skip(static_cast<int>(length))) return std::nullopt;

    const int element_idx = field->is_repeated() ? num_seen[field]++ : 0;
    const auto name = [&] {
      return field->is_repeated() ? absl::StrCat(field->name(), "[", element_idx, "]") : field->name();
    };
    if (field->type() == FieldDescriptor::TYPE_STRING && !IsUtf8(value)) return name();
    if (field->type() == FieldDescriptor::TYPE_MESSAGE && depth < kMaxDepth) {
      const std::optional<std::string> inner = FindInvalidUtf8(value, *field->message_type(), depth + 1);
      if (inner) return absl::StrCat(name(), ".", *inner);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> FindInvalidUtf8(absl::string_view bytes, const Descriptor& descriptor) {
  return FindInvalidUtf8(bytes, descriptor, 1);
}

absl::Status ParseMessage(absl::string_view bytes, google::protobuf::Message& message) {
  // Looked for first: parsing would log every such message, and a client could fill the disk with that.
  if (const std::optional<std::string> field = FindInvalidUtf8(bytes, *message.GetDescriptor())) {
    return absl::InvalidArgumentError(absl::StrCat(*field, ": expected UTF-8, got another byte sequence"));
  }
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected a ", message.GetDescriptor()->full_name(), ", got ",
                                                 bytes.size(), " bytes that do not parse as one"));
}

absl::Status ParseMessage(const grpc::ByteBuffer& buffer, google::protobuf::Message& message) {
  grpc::Slice bytes;
  if (!buffer.DumpToSingleSlice(&bytes).ok()) return absl::InternalError("a request without a payload");
  return ParseMessage(absl::string_view(reinterpret_cast<const char*>(bytes.begin()), bytes.size()), message);
}

}  // namespace foretoken::rpc
