// SPDX-License-Identifier: Apache-2.0
// The subcommands of `foretoken`. Each takes the arguments without the flags and returns the exit code of the process.
#pragma once

#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"

// Print JSON. A flag of generate, explain, tokenize, info, simulate and perplexity.
ABSL_DECLARE_FLAG(bool, json);

namespace foretoken::client {

int RunGenerate(const std::vector<std::string>& arguments);
int RunChat(const std::vector<std::string>& arguments);
int RunExplain(const std::vector<std::string>& arguments);
int RunTokenize(const std::vector<std::string>& arguments);
int RunInfo(const std::vector<std::string>& arguments);
int RunCheck(const std::vector<std::string>& arguments);
int RunCompare(const std::vector<std::string>& arguments);
int RunBench(const std::vector<std::string>& arguments);
int RunSimulate(const std::vector<std::string>& arguments);
int RunQuantize(const std::vector<std::string>& arguments);
int RunPerplexity(const std::vector<std::string>& arguments);
int RunSelfTest(const std::vector<std::string>& arguments);

// 0 for OK, 130 for CANCELLED (Ctrl-C), otherwise 1. Prints "foretoken: CODE: message" to standard error unless OK.
int ExitCode(const absl::Status& status);

}  // namespace foretoken::client
