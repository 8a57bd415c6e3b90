// SPDX-License-Identifier: Apache-2.0
// The subcommands of `foretoken`. Each takes the arguments that are left when the flags are parsed and returns the
// process's exit code.
#pragma once

#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"

// Print for machines: of all commands but compare and bench, which has --json_out.
ABSL_DECLARE_FLAG(bool, json);

namespace foretoken::client {

int RunGenerate(const std::vector<std::string>& arguments);
int RunExplain(const std::vector<std::string>& arguments);
int RunTokenize(const std::vector<std::string>& arguments);
int RunInfo(const std::vector<std::string>& arguments);
int RunCompare(const std::vector<std::string>& arguments);
int RunBench(const std::vector<std::string>& arguments);

// 0 when OK, 130 when CANCELLED, else 1; prints "foretoken: CODE: message" to standard error unless OK.
int ExitCode(const absl::Status& status);

}  // namespace foretoken::client
