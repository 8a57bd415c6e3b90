// SPDX-License-Identifier: Apache-2.0
// What errors say beside our own words: texts that others sent, and a reason for programs.
//
//   return WithReason(absl::NotFoundError(absl::StrCat("model: expected \"demo\", got ", Quoted(request.model()))),
//                     "MODEL_NOT_FOUND");
//
// A reason is a payload of the status: it travels with it, and common/rpc/status.h puts it on the wire.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::base {

inline constexpr size_t kMaxQuotedBytes = 64;

// A text of a client, a peer or a file, for an error or a log: in quotes, on one line of ASCII. Of a long one the first
// max_bytes are shown, and how long it is.
std::string Quoted(absl::string_view foreign, size_t max_bytes = kMaxQuotedBytes);

// The reason in UPPER_SNAKE_CASE; an OK status stays as it is.
absl::Status WithReason(absl::Status status, absl::string_view reason);
// Without one, the name of the code.
std::string ReasonOf(const absl::Status& status);

}  // namespace foretoken::base
