// SPDX-License-Identifier: Apache-2.0
// Where the commands take their prompts from: the arguments, --prompt_tokens, --prompt_file or standard input. Several
// arguments are the words of one prompt, as they come where nobody quoted it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

// One prompt: exactly one of the sources. INVALID_ARGUMENT names what is missing, doubled or unreadable.
absl::Status SetPromptFromFlags(const std::vector<std::string>& arguments, foretoken::v1::GenerateRequest& request);

// Many prompts: that of the arguments alone, or the lines of --prompt_file, each {"prompt": TEXT}. INVALID_ARGUMENT
// names the line.
absl::StatusOr<std::vector<std::string>> PromptsFromFlags(const std::vector<std::string>& arguments);

// The text of a file that a flag names, "-" for standard input. NOT_FOUND names the flag and the file.
absl::StatusOr<std::string> ReadText(absl::string_view flag, const std::string& path);

// INVALID_ARGUMENT says which line is not {"prompt": TEXT}, or that there is none.
absl::StatusOr<std::vector<std::string>> ParsePromptLines(absl::string_view text);

}  // namespace foretoken::client
