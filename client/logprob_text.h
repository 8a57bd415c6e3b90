// SPDX-License-Identifier: Apache-2.0
// The log-probabilities of a generation as text, one line per token.
#pragma once

#include <string>

#include "client/generation.h"
#include "client/token_texts.h"

namespace foretoken::client {

// Whether the prompt or a sample has log-probabilities.
bool HasLogprobs(const Generation& generation);

// "log-probabilities of the output, and of the likeliest tokens:", then lines such as
//   "ab"                      -0.105  "ab" -0.105  "b" -2.303
std::string LogprobText(const Generation& generation, const TokenTexts& texts);

}  // namespace foretoken::client
