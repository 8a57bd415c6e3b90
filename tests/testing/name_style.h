// SPDX-License-Identifier: Apache-2.0
// How names in proto files are written.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::testing {

bool IsLowerSnakeCase(absl::string_view name);  // token_ids
bool IsUpperSnakeCase(absl::string_view name);  // FINISH_REASON_STOP
bool IsPascalCase(absl::string_view name);      // FinishReason
// FinishReason -> FINISH_REASON
std::string ToUpperSnakeCase(absl::string_view pascal);
// Of a package's last part: v1, v2beta3, v1alpha
bool IsVersion(absl::string_view part);

}  // namespace foretoken::testing
