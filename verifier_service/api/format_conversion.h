// SPDX-License-Identifier: Apache-2.0
// Converts the form that a request asks for to the source of a grammar.
//
// Errors: INVALID_ARGUMENT "response_format.field: why". UNAVAILABLE if the compiler of forms is at fault.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "foretoken/v1/generation.pb.h"
#include "verifier_service/api/served_model.h"
#include "verifier_service/grammar/grammar.h"

namespace foretoken::verifier {

// The form that the request asks for, not compiled yet. Unset: any text.
absl::StatusOr<std::optional<GrammarSource>> ConvertFormat(const v1::GenerateRequest& request,
                                                           const ServedModel& model);
// Turns the refusal of a form into an error that names the request's field.
absl::Status FormatError(const v1::ResponseFormat& format, const absl::Status& refusal);

}  // namespace foretoken::verifier
