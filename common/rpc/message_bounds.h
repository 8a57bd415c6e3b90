// SPDX-License-Identifier: Apache-2.0
// How much each field of a message may hold, checked on the bytes, before a parsed message can be many times as large
// as they are: an empty string takes two bytes on the wire and forty in memory.
//
//   const MessageBounds bounds(*v1::TokenizeRequest::descriptor(), {{.path = "model", .max_bytes = 256},
//                                                                   {.path = "text", .max_bytes = 4 << 20}});
//   FT_RETURN_IF_ERROR(bounds.Check(bytes));
//   // INVALID_ARGUMENT "text: expected at most 4194304 bytes, got 5000000"
//
// A table names every repeated field, map, string and bytes field of the message and of the messages in it, or the
// program ends when it makes the table: a new field cannot be forgotten. All repeated messages, strings and bytes
// fields together, map entries aside, may have kMaxElements elements: lists within lists would multiply. Fields that
// the message does not know may take kMaxUnknownBytes in all, because a parsed message keeps them. Strings must be
// UTF-8.
//
// Time: one pass over the bytes. Threads: Check from any.
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
  absl::string_view path;  // as errors name the field, without indices: "stopping.stop_strings"
  size_t max_count = 1;    // elements of a repeated field, entries of a map
  size_t max_bytes = 0;    // of a string or bytes field, each element
};

class MessageBounds {
 public:
  static constexpr size_t kMaxElements = size_t{1} << 18;  // each takes some hundred bytes of memory
  static constexpr size_t kMaxUnknownBytes = size_t{64} << 10;

  MessageBounds(const google::protobuf::Descriptor& descriptor, std::initializer_list<FieldBound> bounds);

  // INVALID_ARGUMENT names the field, the bound and what the message has, or says that the bytes are no such message.
  // Packed fields and map entries are counted, not read: parsing may find more that is wrong with them.
  absl::Status Check(absl::string_view bytes) const;

  // The bounds of one message type at one place; for the check alone.
  struct Fields;

 private:
  const google::protobuf::Descriptor* descriptor_;
  std::shared_ptr<const Fields> fields_;  // shared by copies of the table
};

// INVALID_ARGUMENT: bytes that are no such message.
absl::Status Malformed(const google::protobuf::Descriptor& descriptor, size_t num_bytes);

}  // namespace foretoken::rpc
