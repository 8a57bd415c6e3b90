// SPDX-License-Identifier: Apache-2.0
// absl::Status inside, grpc::Status on the wire; their codes are the same canonical ones.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace foretoken::rpc {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// INVALID_ARGUMENT "field: why", the form in which every request error names its field.
absl::Status InvalidField(absl::string_view field, absl::string_view why);

}  // namespace foretoken::rpc
