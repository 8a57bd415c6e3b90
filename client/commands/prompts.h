// SPDX-License-Identifier: Apache-2.0
// The prompts of the commands: from the arguments, --prompt_tokens, --prompt_file or standard input. Several arguments
// are the words of one prompt, so a prompt needs no quotes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

// Sets one prompt from exactly one of the sources. INVALID_ARGUMENT names a missing, second or unreadable source, and a
// flag of the request that reads standard input where the prompt would be.
absl::Status SetPromptFromFlags(const std::vector<std::string>& arguments, foretoken::v1::GenerateRequest& request);

// Many prompts: one from the arguments, or one per line {"prompt": TEXT} of --prompt_file. INVALID_ARGUMENT names the
// line, and the flag as above.
absl::StatusOr<std::vector<std::string>> PromptsFromFlags(const std::vector<std::string>& arguments);

// The text of a file that a flag or an argument names, "-" for standard input. NOT_FOUND, or UNAVAILABLE for an error
// in reading, names the source, as "--prompt_file" or "FILE", and the file.
absl::StatusOr<std::string> ReadText(absl::string_view source, const std::string& path);

}  // namespace foretoken::client
