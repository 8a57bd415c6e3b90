// SPDX-License-Identifier: Apache-2.0
// Turns the conversation of a request into the tokens of a prompt, with the chat template of the model's checkpoint.
//
// Errors: INVALID_ARGUMENT "chat.field: why, expected and got". An error of the template itself names the field "chat".
// Time: linear in the request's bytes for the templates of known models. chat::RenderBudget bounds it for others.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "foretoken/v1/generation.pb.h"
#include "verifier_service/api/served_model.h"

namespace foretoken::verifier {

// The request must have a chat.
absl::StatusOr<std::vector<int32_t>> ChatTokens(const v1::GenerateRequest& request, const ServedModel& model);

}  // namespace foretoken::verifier
