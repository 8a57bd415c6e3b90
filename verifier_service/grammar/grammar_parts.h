// SPDX-License-Identifier: Apache-2.0
// XGrammar's objects inside of ours. Only this room's .cc files include it.
#pragma once

#include <string>
#include <vector>

#include "verifier_service/grammar/grammar.h"
#include "xgrammar/xgrammar.h"

namespace foretoken::verifier {

struct GrammarVocabulary::Parts {
  xgrammar::TokenizerInfo info;
  std::vector<std::string> special_spellings;
};

struct Grammar::Parts {
  xgrammar::CompiledGrammar compiled;
};

}  // namespace foretoken::verifier
