// SPDX-License-Identifier: Apache-2.0
// Finds anchors inside a regular expression. XGrammar matches whole texts and passes over anchors, which changes
// nothing at the ends of an expression, and everything inside: no text matches a^b, and XGrammar would write ab.
//
//   HasInnerAnchor("^a|b$");  // false
//   HasInnerAnchor("a^b");    // true
//   HasInnerAnchor("[^a]");   // false
#pragma once

#include "absl/strings/string_view.h"

namespace foretoken::verifier {

// True also for anchors in the alternatives of a group, as in (a|^b), because XGrammar would not tell them apart.
bool HasInnerAnchor(absl::string_view pattern);

}  // namespace foretoken::verifier
