// SPDX-License-Identifier: Apache-2.0
// Checks on a message's bytes how much each of its fields holds. The check comes before parsing, because a parsed
// message can be many times as large as its bytes: an empty string takes two bytes on the wire and forty in memory.
//
//   const MessageBounds bounds(*v1::TokenizeRequest::descriptor(), {{.path = "model", .max_bytes = 256},
//                                                                   {.path = "text", .max_bytes = 4 << 20}});
//   FT_RETURN_IF_ERROR(bounds.Check(bytes));
//   // INVALID_ARGUMENT "text: expected at most 4194304 bytes, got 5000000"
//
// A table must name every repeated field, map, string and bytes field of the message and of the messages in it, or the
// program ends when it makes the table. So a new field cannot be forgotten. All repeated messages, strings and bytes
// fields together, except map entries, may have kMaxElements elements, because the sizes of lists within lists
// multiply. Fields that the message type does not have, or has with another wire type, may take kMaxUnknownBytes in
// all, because a parsed message keeps them. Strings must be UTF-8.
//
// Time: one pass over the bytes.
// Threads: any may call Check.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace foretoken::rpc {

struct FieldBound {
  absl::string_view path;  // the field's name in errors, without indices: "stopping.stop_strings"
  size_t max_count = 1;    // elements of a repeated field, entries of a map
  size_t max_bytes = 0;    // of a string or bytes field, each element
};

class MessageBounds {
 public:
  static constexpr size_t kMaxElements = size_t{1} << 18;  // each takes some hundred bytes of memory
  static constexpr size_t kMaxUnknownBytes = size_t{64} << 10;

  MessageBounds(const google::protobuf::Descriptor& descriptor, std::initializer_list<FieldBound> bounds);

  // INVALID_ARGUMENT names the field, the bound and the given number, or says that the bytes are not such a message. It
  // counts packed fields and map entries but does not read them, so parsing may find more faults.
  absl::Status Check(absl::string_view bytes) const;

  // The bounds of one message type at one place; only the check uses it.
  struct Fields;

 private:
  const google::protobuf::Descriptor* descriptor_;
  std::shared_ptr<const Fields> fields_;  // shared by copies of the table
};

// INVALID_ARGUMENT: the bytes are not such a message.
absl::Status Malformed(const google::protobuf::Descriptor& descriptor, size_t num_bytes);

}  // namespace foretoken::rpc
