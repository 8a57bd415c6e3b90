// SPDX-License-Identifier: Apache-2.0
// Gzip, the compression of OTLP's messages.
//
//   const std::string packed = Gzip(plain);
//   if (IsGzip(packed)) plain = Gunzip(packed, kMaxBytes).value_or("");
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::tracing {

std::string Gzip(absl::string_view plain);

// True if the bytes begin as gzip's do.
bool IsGzip(absl::string_view bytes);

// Returns what the bytes hold, but at most its first max_bytes: a few bytes of a stranger may hold gigabytes. Unset if
// the bytes are broken.
std::optional<std::string> Gunzip(absl::string_view packed, size_t max_bytes);

}  // namespace foretoken::tracing
