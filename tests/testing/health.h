// SPDX-License-Identifier: Apache-2.0
// Reads a server's health.
//
//   EXPECT_EQ(CheckHealth(channel), Health::kServing);
#pragma once

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/channel.h"
#include "tests/testing/unary_call.h"

namespace foretoken::testing {

enum class Health { kServing, kNotServing, kUnreachable };

// Calls grpc.health.v1.Health/Check with hand-written messages, because its proto is not installed. The request's only
// field is the service, and the answer's only field is the status.
inline Health CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service = {}) {
  const std::string request = service.empty() ? service : absl::StrCat("\x0a", std::string(1, service.size()), service);
  const UnaryResult result = CallWithBytes(channel, "/grpc.health.v1.Health/Check", request);
  if (!result.status.ok()) return Health::kUnreachable;
  return result.response == std::string("\x08\x01", 2) ? Health::kServing : Health::kNotServing;
}

}  // namespace foretoken::testing
