// SPDX-License-Identifier: Apache-2.0
// Parts of an error beside our own words: text that others sent, a reason that programs can read, the field of a
// request that is wrong, whether a retry may help, and whether a log may have the message.
//
//   return WithReason(absl::NotFoundError(absl::StrCat("model: expected \"demo\", got ", Quoted(request.model()))),
//                     "MODEL_NOT_FOUND");
//
// All are payloads of the status and travel with it. common/rpc/status.h puts the reason, the field and the retry on
// the wire.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace foretoken::base {

inline constexpr size_t kMaxQuotedBytes = 64;

// Makes the text of a client, a peer or a file fit for an error or a log: in quotes, on one line of ASCII. A long text
// is cut to its first max_bytes, and its length is given.
std::string Quoted(absl::string_view foreign, size_t max_bytes = kMaxQuotedBytes);

// Adds the reason, in UPPER_SNAKE_CASE. An OK status stays as it is.
absl::Status WithReason(absl::Status status, absl::string_view reason);
// Returns the reason or, without one, the name of the code.
std::string ReasonOf(const absl::Status& status);

// Adds the field of the request that the error is about. The message begins with it: "field: why".
absl::Status WithField(absl::Status status, absl::string_view field);
// Returns the field; empty: none.
std::string FieldOf(const absl::Status& status);

// Says that the same request may succeed a moment later, for example because a queue is full now.
absl::Status Passing(absl::Status status);
bool IsPassing(const absl::Status& status);

// Says that the message quotes more of a client's texts than a name. The client gets the message, and no log has it.
absl::Status Confidential(absl::Status status);
bool IsConfidential(const absl::Status& status);

}  // namespace foretoken::base
