// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/name_resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"

namespace foretoken::verifier {

std::vector<std::string> TargetsOf(const addrinfo& answer, const std::string& port) {
  std::vector<std::string> targets;
  for (const addrinfo* address = &answer; address != nullptr; address = address->ai_next) {
    char host[NI_MAXHOST];
    if (address->ai_family != answer.ai_family) continue;
    if (getnameinfo(address->ai_addr, address->ai_addrlen, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    targets.push_back(address->ai_family == AF_INET6 ? absl::StrCat("ipv6:[", host, "]:", port)
                                                     : absl::StrCat("ipv4:", host, ":", port));
  }
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return targets;
}

absl::StatusOr<std::vector<std::string>> ResolveName(const std::string& name_port) {
  const size_t colon = name_port.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("expected name:port, got \"", name_port, "\""));
  }
  const std::string name(base::WithoutBrackets(absl::string_view(name_port).substr(0, colon)));
  const std::string port = name_port.substr(colon + 1);
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("resolving ", name_port, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  return TargetsOf(*found, port);
}

}  // namespace foretoken::verifier
