// SPDX-License-Identifier: Apache-2.0
// Finds what XGrammar would pass over in a regular expression, or read otherwise than regular expressions are read.
// XGrammar matches whole texts and passes over anchors. This changes nothing at the ends of an expression, and
// everything inside: no text matches a^b, and XGrammar would write ab. It takes a letter behind a backslash as the
// letter where it knows no such escape, so that \Aa\Z would write AaZ.
//
//   BadRegex("^a|b$");  // ""
//   BadRegex("a^b");    // "anchors are not supported inside"
//   BadRegex("[^a]");   // ""
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::verifier {

// Returns "" if all of the expression is followed. Anchors in the alternatives of a group, as in (a|^b), and in a
// repeated group, as in (^a)+, are inside, because XGrammar would not tell them apart.
std::string BadRegex(absl::string_view pattern);

}  // namespace foretoken::verifier
