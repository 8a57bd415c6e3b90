// SPDX-License-Identifier: Apache-2.0
#include "common/flags/listen_ports.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"

namespace foretoken::flags {
namespace {

bool IsAllAddresses(absl::string_view host) { return host.empty() || host == "0.0.0.0" || host == "[::]"; }

bool Clash(absl::string_view a, absl::string_view b) {
  const std::optional<int32_t> port = base::PortOf(a);
  if (port.value_or(0) == 0 || port != base::PortOf(b)) return false;
  const absl::string_view host_a = base::HostOf(a), host_b = base::HostOf(b);
  return host_a == host_b || IsAllAddresses(host_a) || IsAllAddresses(host_b);
}

}  // namespace

absl::Status CheckPortsDiffer(std::initializer_list<ListenFlag> flags) {
  for (const ListenFlag* later = flags.begin(); later != flags.end(); ++later) {
    for (const ListenFlag* flag = flags.begin(); flag != later; ++flag) {
      if (!Clash(flag->address, later->address)) continue;
      return absl::InvalidArgumentError(absl::StrCat("--", later->name, ": expected another port than that of --",
                                                     flag->name, "=", flag->address, ", got \"", later->address, "\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace foretoken::flags
