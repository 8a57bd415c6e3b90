// SPDX-License-Identifier: Apache-2.0
// Converts between absl::Status inside and grpc::Status on the wire. Both have the same canonical codes.
//
// Details go with every error, as google.rpc.Status in "grpc-status-details-bin":
// - ErrorInfo: the reason (common/base/error_text.h) and the domain "foretoken";
// - BadRequest, if the error names a field;
// - RetryInfo with UNAVAILABLE, and with a RESOURCE_EXHAUSTED that passes (base::Passing).
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

namespace foretoken::rpc {

// The longest error message on the wire; longer ones are cut. A client accepts 8 KiB of trailers by default. The
// trailers may hold the message three times, once with three bytes for each of its bytes (percent-encoded). If the
// trailers were larger, the client would see another error.
inline constexpr size_t kMaxErrorBytes = 512;
// A client may try again after this time: the queue may have space, or the server may be back.
inline constexpr absl::Duration kRetryDelay = absl::Seconds(1);

grpc::Status ToGrpc(const absl::Status& status);
// Adds "grpc-retry-pushback-ms" to the call's trailers if the error is a RESOURCE_EXHAUSTED that passes. gRPC's own
// retries of a client wait this long. Call it before Finish.
void AddPushback(const absl::Status& status, grpc::CallbackServerContext& context);
// Drops the details.
absl::Status FromGrpc(const grpc::Status& status);

// INVALID_ARGUMENT "field: why": the form in which every request error names its field.
absl::Status InvalidField(absl::string_view field, absl::string_view why);

}  // namespace foretoken::rpc
