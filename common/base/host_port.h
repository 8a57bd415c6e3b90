// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace foretoken::base {

// The host of HOST:PORT or HOST. An IPv6 address keeps its brackets, and has no port without them.
inline absl::string_view HostOf(absl::string_view host_port) {
  const size_t colon = host_port.rfind(':');
  const bool has_port =
      colon != absl::string_view::npos && (colon == host_port.find(':') || host_port[colon - 1] == ']');
  return has_port ? host_port.substr(0, colon) : host_port;
}

// [::1] -> ::1
inline absl::string_view WithoutBrackets(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return host;
}

// The port of HOST:PORT, 0 to 65535; unset: there is none. Libraries that resolve addresses take a larger number modulo
// 65,536.
inline std::optional<int32_t> PortOf(absl::string_view host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  const absl::string_view digits = host_port.substr(colon + 1);
  int32_t port = 0;
  const bool is_number = !digits.empty() && digits.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!is_number || !absl::SimpleAtoi(digits, &port) || port > 65'535) return std::nullopt;
  return port;
}

}  // namespace foretoken::base
