// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/proposer_spec.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"

namespace foretoken::verifier {
namespace {

absl::Status SpecError(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("proposer \"", text, "\": ", what));
}

absl::Status CheckHostPort(absl::string_view text, absl::string_view host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == 0 || base::PortOf(host_port).value_or(0) == 0) {
    return SpecError(text, absl::StrCat("expected host:port with a port in [1, 65535], got \"", host_port, "\""));
  }
  const absl::string_view host = host_port.substr(0, colon);
  const bool is_bracketed = host.front() == '[' && host.back() == ']';
  if (host.find(':') != absl::string_view::npos && !is_bracketed) {
    return SpecError(text, absl::StrCat("expected an IPv6 address in brackets, got \"", host_port, "\""));
  }
  return absl::OkStatus();
}

absl::Status CheckMethod(absl::string_view text, absl::string_view method) {
  const bool is_name = !method.empty() && std::all_of(method.begin(), method.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-';
  });
  if (is_name) return absl::OkStatus();
  return SpecError(text, absl::StrCat("expected a method name of letters, digits, _ and -, got \"", method, "\""));
}

// "KEY=VALUE[,KEY=VALUE...]"
absl::Status ReadOptions(absl::string_view text, absl::string_view list, ProposerSpec& spec) {
  for (const absl::string_view option : absl::StrSplit(list, ',')) {
    const size_t equals = option.find('=');
    if (equals == absl::string_view::npos || equals == 0) {
      return SpecError(text, absl::StrCat("expected KEY=VALUE after embedded, got \"", option,
                                          "\"; a value that is a list stands with + for commas"));
    }
    spec.options.emplace_back(option.substr(0, equals), option.substr(equals + 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ProposerSpec> ParseProposerSpec(absl::string_view text) {
  ProposerSpec spec;
  const size_t end = std::min(text.find_first_of("=,"), text.size());
  absl::string_view rest = text.substr(end);
  const bool has_targets = absl::ConsumePrefix(&rest, "=");
  if (!has_targets && !absl::ConsumePrefix(&rest, ",embedded")) {
    return SpecError(text, "expected METHOD=TARGET[,TARGET...] or METHOD,embedded[,KEY=VALUE...]");
  }
  FT_RETURN_IF_ERROR(CheckMethod(text, text.substr(0, end)));
  spec.method = std::string(text.substr(0, end));
  if (!has_targets) {
    spec.is_embedded = true;
    if (rest.empty()) return spec;
    if (!absl::ConsumePrefix(&rest, ",")) {
      return SpecError(text, absl::StrCat("expected a comma after embedded, got \"", rest, "\""));
    }
    FT_RETURN_IF_ERROR(ReadOptions(text, rest, spec));
    return spec;
  }
  bool had_static = false;
  for (absl::string_view target : absl::StrSplit(rest, ',')) {
    if (absl::ConsumePrefix(&target, "dns:///")) {
      FT_RETURN_IF_ERROR(CheckHostPort(text, target));
      spec.dns_names.emplace_back(target);
      continue;
    }
    if (!absl::ConsumePrefix(&target, "static:") && !had_static) {
      return SpecError(text, absl::StrCat("expected dns:///name:port or static:host:port, got \"", target, "\""));
    }
    had_static = true;
    FT_RETURN_IF_ERROR(CheckHostPort(text, target));
    spec.static_addresses.emplace_back(target);
  }
  return spec;
}

}  // namespace foretoken::verifier
