// SPDX-License-Identifier: Apache-2.0
// Resolves a name to all its addresses, so that each replica gets its own channel.
#pragma once

#include <netdb.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace foretoken::verifier {

// "name:port" -> gRPC targets "ipv4:10.0.0.1:50052" or "ipv6:[::1]:50052", sorted, without duplicates. The error is
// UNAVAILABLE with the name and the reason. May block as long as the system's resolver does.
using NameResolver = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& name_port)>;

// Resolves with the system's resolver.
absl::StatusOr<std::vector<std::string>> ResolveName(const std::string& name_port);

// The gRPC targets of the addresses that getaddrinfo found. If it found IPv4 and IPv6 addresses, only those of the
// first address's family, which the system prefers (RFC 6724): a replica with an address of each family would count
// twice.
std::vector<std::string> TargetsOf(const addrinfo& answer, const std::string& port);

}  // namespace foretoken::verifier
