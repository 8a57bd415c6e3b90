// SPDX-License-Identifier: Apache-2.0
// Every address behind a name, so that each replica gets a channel of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace foretoken::verifier {

// "name:port" -> gRPC targets "ipv4:10.0.0.1:50052" or "ipv6:[::1]:50052", sorted, each once. UNAVAILABLE names the
// name and says why. May block for as long as the system's resolver does.
using NameResolver = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& name_port)>;

// By the system's resolver.
absl::StatusOr<std::vector<std::string>> ResolveName(const std::string& name_port);

}  // namespace foretoken::verifier
