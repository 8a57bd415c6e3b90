// SPDX-License-Identifier: Apache-2.0
// absl::Status inside, grpc::Status on the wire; their codes are the same canonical ones.
//
// Details go with every error, as google.rpc.Status in "grpc-status-details-bin":
// - ErrorInfo: the reason (common/base/error_text.h) and the domain "foretoken";
// - BadRequest where the error names a field;
// - RetryInfo with RESOURCE_EXHAUSTED and UNAVAILABLE.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace foretoken::rpc {

// Of an error's message on the wire; longer ones are cut. A client takes 8 KiB of trailers by default, in which the
// message may stand three times, once with three bytes per byte: an error that is larger would become another one.
inline constexpr size_t kMaxErrorBytes = 512;
// After this time a client may try again: a full queue may have room, a server may be back.
inline constexpr absl::Duration kRetryDelay = absl::Seconds(1);

grpc::Status ToGrpc(const absl::Status& status);
// Without the details.
absl::Status FromGrpc(const grpc::Status& status);

// INVALID_ARGUMENT "field: why", the form in which every request error names its field.
absl::Status InvalidField(absl::string_view field, absl::string_view why);

}  // namespace foretoken::rpc
