// SPDX-License-Identifier: Apache-2.0
// Bounds how deep a template is nested, before the engine parses it. The engine's parser is recursive, and so are the
// trees that it makes, so a deep template would use up the stack.
//
//   FT_RETURN_IF_ERROR(CheckNesting(jinja::lexer().tokenize(source).tokens));
//
// Known templates have some ten blocks and some five brackets inside each other.
// Errors: INVALID_ARGUMENT, expected and got.
// Time: linear.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "jinja/lexer.h"

namespace foretoken::chat {

inline constexpr int kMaxOpenBlocks = 200;  // an elif counts as a block inside the one before it
inline constexpr int kMaxOpenBrackets = 64;
inline constexpr int kMaxTagTokens = 4096;  // between {{ and }}, or {% and %}: operators nest, too

absl::Status CheckNesting(const std::vector<jinja::token>& tokens);

}  // namespace foretoken::chat
