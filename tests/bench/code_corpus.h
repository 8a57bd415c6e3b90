// SPDX-License-Identifier: Apache-2.0
// Code to measure on, without a network: this repository's sources and what the machine has under /usr/lib/python3* and
// /usr/include, tokenised by the demo model's tokenizer. Where that is too short it is repeated with every eighth line
// or so dropped, as files are copied and changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace foretoken::bench {

struct CodeCorpus {
  std::vector<std::vector<int32_t>> files;  // in an order that does not depend on the machine's folder order
  int64_t num_tokens = 0;
  std::string description;  // what was used, for people
};

// At least `num_tokens`, mixed from all places.
absl::StatusOr<CodeCorpus> LoadCodeCorpus(int64_t num_tokens);

}  // namespace foretoken::bench
