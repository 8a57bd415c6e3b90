// SPDX-License-Identifier: Apache-2.0
// The prompts of a file for --prompt_file: one in each line, as {"prompt": TEXT}. Other keys and empty lines are
// skipped.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::client {

// INVALID_ARGUMENT names the line that is not {"prompt": TEXT}, or says that there is no prompt.
absl::StatusOr<std::vector<std::string>> ParsePromptLines(absl::string_view text);

}  // namespace foretoken::client
