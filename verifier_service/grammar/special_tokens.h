// SPDX-License-Identifier: Apache-2.0
// Special tokens in forms. A form is a form of text, and a special token is no text, whatever it is called: a JSON
// string that spells <s> is four characters. But models write the tags of their calls of functions with special tokens,
// so the strings of a structural tag mean the tokens that they spell.
//
// For a grammar a special token has bytes that no text has: kSpecialMark and its spelling. MarkSpecialTokens puts the
// mark before each spelling in a structural tag, so that only the token itself can come there. XGrammar knows the
// tokens of its token formats and of Token(id) in grammars by their ids, and needs no mark.
//
//   MarkSpecialTokens(R"({"begin": "[CALL]f", ...})", {"[CALL]"});  // {"begin": kSpecialMark + "[CALL]f", ...}
#pragma once

#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::verifier {

// No byte of UTF-8, so that no form asks for it. Tokens of text that have this byte are never part of a form.
inline constexpr char kSpecialMark = '\xFF';

// The structural tag with marks, for XGrammar alone, because it is no UTF-8 then. Schemas, grammars and regular
// expressions inside the tag stay as they are, and so does a text that is no JSON.
std::string MarkSpecialTokens(const std::string& tag, std::span<const std::string> spellings);

}  // namespace foretoken::verifier
