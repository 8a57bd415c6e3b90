// SPDX-License-Identifier: Apache-2.0
// Programs log with spdlog: spdlog::info("listening on {}", address). InitLogging sets the form of the lines, once, at
// the start of a program. An event with values that a program may want to read is logged with its values as fields:
//
//   LogEvent(spdlog::level::debug, "request ended", {{"request_id", id}, {"tokens", num_tokens}});
//
//   text: 2026-11-23T10:00:00.000Z debug 17 request ended: request_id="mine" tokens=48
//   JSON: {"time":"2026-11-23T10:00:00.000Z","level":"debug","thread":17,"message":"request ended",
//          "request_id":"mine","tokens":48}
//
// An event is one line, whatever its texts hold.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "spdlog/common.h"

namespace foretoken::telemetry {

// Lines go to standard error, with the time in UTC and the thread. `level` is trace, debug, info, warning, error or
// off. `format` is text or json.
// Errors: INVALID_ARGUMENT with the level or the format.
absl::Status InitLogging(absl::string_view level, absl::string_view format = "text");

struct LogField {
  absl::string_view name;
  std::variant<std::string, int64_t, double> value;
};

// Names the error that ends the program: in the log or, before InitLogging and without a log, on standard error.
void ReportLastError(absl::string_view program, const absl::Status& error);

// From now on an allocation that fails ends the process with code 1 and a line in the form of the log. Otherwise it
// would throw, and gRPC swallows what its callbacks throw: a call could wait forever.
void EndIfMemoryRunsOut();

void LogEvent(spdlog::level::level_enum level, absl::string_view message, std::initializer_list<LogField> fields);

}  // namespace foretoken::telemetry
