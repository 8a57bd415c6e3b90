// SPDX-License-Identifier: Apache-2.0
// The details that an error carries for programs (google.rpc.Status).
#pragma once

#include <optional>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace foretoken::testing {

// The detail of this type, if the error has one.
template <typename Detail>
std::optional<Detail> FindDetail(const grpc::Status& error) {
  google::rpc::Status details;
  if (!details.ParseFromString(error.error_details())) return std::nullopt;
  for (const google::protobuf::Any& any : details.details()) {
    if (Detail detail; any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

// Empty if the error has no reason.
inline std::string ReasonOf(const grpc::Status& error) {
  const auto info = FindDetail<google::rpc::ErrorInfo>(error);
  return info.has_value() ? info->reason() : "";
}

}  // namespace foretoken::testing
