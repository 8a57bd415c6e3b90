// SPDX-License-Identifier: Apache-2.0
// Programs log with spdlog: spdlog::info("listening on {}", address). InitLogging sets the form of the lines, once, at
// the start of a program.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::telemetry {

// Lines go to standard error, with the time in UTC and the thread. `level` is trace, debug, info, warning, error or
// off.
// Errors: INVALID_ARGUMENT with the level.
absl::Status InitLogging(absl::string_view level);

}  // namespace foretoken::telemetry
