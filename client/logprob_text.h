// SPDX-License-Identifier: Apache-2.0
// The log-probabilities of a generation, a line for each token.
#pragma once

#include <string>

#include "client/generation.h"
#include "client/token_texts.h"

namespace foretoken::client {

// Of the prompt or of a sample.
bool HasLogprobs(const Generation& generation);

// "log-probabilities of the output, and of the likeliest tokens:", then lines such as
//   "ab"                      -0.105  "ab" -0.105  "b" -2.303
std::string LogprobText(const Generation& generation, const TokenTexts& texts);

}  // namespace foretoken::client
