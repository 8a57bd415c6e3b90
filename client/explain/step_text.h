// SPDX-License-Identifier: Apache-2.0
// One step of a request as text: its position, its times, its proposers, its tree and its emitted tokens.
#pragma once

#include <string>

#include "client/explain/step_tree_text.h"
#include "client/token_texts.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

// Lines, each with its line end, of at most 100 columns unless names are very long.
std::string StepText(const foretoken::v1::StepReport& step, const TokenTexts& texts, const StepTextOptions& options);

}  // namespace foretoken::client
