// SPDX-License-Identifier: Apache-2.0
// Code for measurements without a network: this repository's sources and the files under /usr/lib/python3* and
// /usr/include, tokenised by the demo model's tokenizer. If there are too few tokens, the corpus repeats the code and
// drops about every eighth line, like files that are copied and changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace foretoken::bench {

struct CodeCorpus {
  std::vector<std::vector<int32_t>> files;  // in an order that is the same on every machine
  int64_t num_tokens = 0;
  std::string description;  // the sources of the code, for people
};

// Loads at least `num_tokens` tokens, mixed from all places.
absl::StatusOr<CodeCorpus> LoadCodeCorpus(int64_t num_tokens);

}  // namespace foretoken::bench
