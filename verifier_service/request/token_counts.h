// SPDX-License-Identifier: Apache-2.0
// The tokens of a context, and how often each was generated. Penalties use the counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kernels/ops.h"

namespace foretoken::verifier {

class TokenCounts {
 public:
  void AddPrompt(int32_t token_id) { CountOf(token_id); }
  void AddGenerated(int32_t token_id) { ++CountOf(token_id).num_generated; }
  std::span<const kernels::TokenCount> counts() const { return counts_; }

 private:
  kernels::TokenCount& CountOf(int32_t token_id) {
    const auto [place, is_new] = places_.try_emplace(token_id, counts_.size());
    if (is_new) counts_.push_back({.token_id = token_id});
    return counts_[place->second];
  }

  std::vector<kernels::TokenCount> counts_;
  absl::flat_hash_map<int32_t, size_t> places_;
};

}  // namespace foretoken::verifier
