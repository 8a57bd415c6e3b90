// SPDX-License-Identifier: Apache-2.0
// Reads one field of a message that is not parsed yet, without a copy of the message.
//
//   PeekString(bytes, {.number = v1::GenerateRequest::kTenantFieldNumber, .max_bytes = 256});
//   PeekNumber(bytes, {.number = v1::GenerateRequest::kSamplingFieldNumber, .max_bytes = 1024},
//              v1::SamplingOptions::kNFieldNumber);
//
// The answer is a hint, because the message may break any rule. It is empty if the message has no such field, if the
// field stands behind kMaxPeekedFields others, or if the bytes before it are no message. A longer string is cut. For a
// valid message with fewer fields the hint is the field's value.
//
// Time: O(kMaxPeekedFields), for a message of any size.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "grpcpp/support/byte_buffer.h"

namespace foretoken::rpc {

inline constexpr int kMaxPeekedFields = 64;  // of the message itself; fields within fields do not count

struct PeekedField {
  int number = 0;
  size_t max_bytes = 0;
};

std::string PeekString(const grpc::ByteBuffer& bytes, const PeekedField& field);
// The whole number in a field of the message in a field. Of several such messages the last one counts.
std::optional<uint64_t> PeekNumber(const grpc::ByteBuffer& bytes, const PeekedField& message, int number);

}  // namespace foretoken::rpc
