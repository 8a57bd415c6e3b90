// SPDX-License-Identifier: Apache-2.0
// The ports that a program listens on.
//
//   FT_RETURN_IF_ERROR(flags::CheckPortsDiffer({{"listen", "0.0.0.0:50051"}, {"metrics_listen", "127.0.0.1:9100"}}));
#pragma once

#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::flags {

struct ListenFlag {
  absl::string_view name;
  absl::string_view address;  // HOST:PORT; empty: none
};

// INVALID_ARGUMENT names two flags with one port, if their hosts are equal or one is all addresses ("0.0.0.0", "[::]").
// Port 0 takes a free one. The function resolves no names, so it takes "localhost" and "127.0.0.1" for two hosts.
absl::Status CheckPortsDiffer(std::initializer_list<ListenFlag> flags);

}  // namespace foretoken::flags
