// SPDX-License-Identifier: Apache-2.0
// Logging is spdlog's: spdlog::info("listening on {}", address). This sets its form once, at the start of a program.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::telemetry {

// Lines go to standard error, with time in UTC and thread. `level` is trace, debug, info, warning, error or off.
// Errors: INVALID_ARGUMENT with the level.
absl::Status InitLogging(absl::string_view level);

}  // namespace foretoken::telemetry
