// SPDX-License-Identifier: Apache-2.0
// Every option of a GenerateRequest as a command-line flag. A flag that is not given leaves its field unset, so the
// server's default applies.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

// Makes a request without a prompt. INVALID_ARGUMENT names a flag that cannot be parsed. The server checks the values.
// Standard input can be read once, so INVALID_ARGUMENT also names a second flag that would read it. `input_holds` says
// what else standard input holds, as "the messages": then no flag may read it.
absl::StatusOr<foretoken::v1::GenerateRequest> RequestFromFlags(std::optional<std::string> input_holds = std::nullopt);

// The flag whose text RequestFromFlags reads from standard input, as "--prediction_file". Unset: there is none.
std::optional<std::string> RequestFlagOnStandardInput();

}  // namespace foretoken::client
