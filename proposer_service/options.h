// SPDX-License-Identifier: Apache-2.0
// Which options a method has, and a proposer's configuration from pairs of names and texts. A verifier configures an
// embedded proposer in this way:
//
//   ConfigFromOptions("draft", {{"model", "/models/small"}, {"children", "8"}})
//
// The names are the flags of foretoken_proposer; option_list.inc defines both. A name may leave out its method's
// prefix, as in "children" for "draft_children".
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proposer_service/config.h"

namespace foretoken::proposer {

// Options without a text keep their defaults, except that one stream may use the whole proposer. INVALID_ARGUMENT: an
// unknown method; a name that the method does not have (the error lists the names); a name that is given twice; a text
// that does not fit the option's type. The function does not check ranges; Validate does.
absl::StatusOr<Config> ConfigFromOptions(absl::string_view method,
                                         std::span<const std::pair<std::string, std::string>> options);

// INVALID_ARGUMENT: an unknown method; a flag of foretoken_proposer that is an option of other methods only. The error
// lists the method's flags.
absl::Status CheckFlags(absl::string_view method, const std::vector<absl::string_view>& flags);

}  // namespace foretoken::proposer
