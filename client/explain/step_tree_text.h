// SPDX-License-Identifier: Apache-2.0
// A drawing of a step's tree. Every line is a node: its outcome, its token, its path chance as stated by its proposers
// and as calibrated, and its proposers. Branches are indented. A single child stands straight below its parent.
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
  int num_unplanned_nodes = 4;  // the likeliest nodes without a row are shown, at most this many
};

// Explains the marks and numbers of a drawing. Lines, each with its line end.
std::string TreeLegend();

// The drawing as lines, each with its line end; empty for an empty tree. The step must pass CheckStep.
std::string TreeText(const foretoken::v1::StepReport& step, const TokenTexts& texts, const StepTextOptions& options);

}  // namespace foretoken::client
