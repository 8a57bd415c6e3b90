// SPDX-License-Identifier: Apache-2.0
// One step of a request in words: where it stood, what it took, whose guesses there were, the tree, what was said.
#pragma once

#include <string>

#include "client/explain/step_tree_text.h"
#include "client/token_texts.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

// Lines of at most 100 columns, each with its end, unless names are very long.
std::string StepText(const foretoken::v1::StepReport& step, const TokenTexts& texts, const StepTextOptions& options);

}  // namespace foretoken::client
