// SPDX-License-Identifier: Apache-2.0
// A proposer's configuration from named texts, as a verifier is told about a proposer inside its own process:
//
//   ConfigFromOptions("draft", {{"model", "/models/small"}, {"children", "8"}})
//
// The names are those of foretoken_proposer's flags (option_list.inc is both), and may leave out the method and the
// underscore that they begin with.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proposer_service/config.h"

namespace foretoken::proposer {

// An option that is not named has its default, but a single stream may use all of the proposer. INVALID_ARGUMENT: an
// unknown method; a name that the method does not have (what it has is listed) or that is given twice; a text that is
// no value of its type. Ranges are Validate's business.
absl::StatusOr<Config> ConfigFromOptions(absl::string_view method,
                                         std::span<const std::pair<std::string, std::string>> options);

}  // namespace foretoken::proposer
