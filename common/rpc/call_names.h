// SPDX-License-Identifier: Apache-2.0
// Names that a gateway in front can give to a Generate call by its metadata:
//
//   x-request-id           the request's id, of 1 to 256 printable ASCII characters
//   x-foretoken-tenant     the tenant, likewise
//   x-foretoken-priority   the priority, an integer
//
// They count only where the request's message leaves the field empty. They are the word of the caller, as the message
// is: a gateway that sets them must not let its own callers do so.
//
// Errors: INVALID_ARGUMENT with the key of the entry.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "foretoken/v1/generation.pb.h"
#include "grpcpp/support/string_ref.h"

namespace foretoken::rpc {

inline constexpr char kRequestIdKey[] = "x-request-id";
inline constexpr char kTenantKey[] = "x-foretoken-tenant";
inline constexpr char kPriorityKey[] = "x-foretoken-priority";

// As the caller sent them, unchecked; empty: not sent.
struct CallNames {
  std::string request_id, tenant, priority;
};

CallNames NamesOf(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata);

// Sets the empty ones of the request's id, tenant and priority.
absl::Status FillIn(const CallNames& names, v1::GenerateRequest& request);
// The tenant that the message names, or else the one of the metadata.
absl::StatusOr<std::string> TenantOf(const CallNames& names, const std::string& in_message);

}  // namespace foretoken::rpc
