// SPDX-License-Identifier: Apache-2.0
// A step's tree, drawn. Every line is a node: what came of it, its token, how likely its path was, as stated and as
// calibrated, and who guessed it. Branches are indented; a lone child stands straight below its parent.
//
//   ├─ ✓ "\n"                        0.820 → 0.790  ngram draft
//   │  ✓ "    "                      0.590 → 0.610  draft
//   │  ├─ ✗ "return"                 0.280 → 0.310  draft
//   │  └─ ! "if"                     0.120 → 0.070  ngram
//   └─ · "def"                       0.100 → 0.050  ngram
//   … 14 more had no row, the likeliest 0.012
#pragma once

#include <string>

#include "client/token_texts.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

struct StepTextOptions {
  bool color = false;
  int num_unplanned_nodes = 4;  // of those without a row only the likeliest are shown
};

// What the marks and numbers mean: lines, each with its end.
std::string TreeLegend();

// Lines, each with its end; none for an empty tree. `step` is well-formed as CheckStep has it.
std::string TreeText(const foretoken::v1::StepReport& step, const TokenTexts& texts, const StepTextOptions& options);

}  // namespace foretoken::client
