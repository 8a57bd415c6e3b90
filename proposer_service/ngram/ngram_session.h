// SPDX-License-Identifier: Apache-2.0
// A sequence's session at the n-gram proposer: the index, the match of the sequence's end, and the confidence in
// matches. ngram.h explains the method.
#pragma once

#include <array>
#include <cstdint>

#include "common/speculation/match_confidence.h"
#include "proposer_service/ngram/ngram_index.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

// The earlier occurrences of the tokens before a point of the sequence or of its tree.
struct NgramMatch {
  static constexpr int32_t kMaxOccurrences = 8;
  static constexpr int32_t kMaxLength = speculation::MatchConfidence::kMaxLength;

  int32_t length = 0;  // equal tokens at the best occurrence
  int32_t num_occurrences = 0;
  std::array<TokenIndex, kMaxOccurrences> next;  // the token after each occurrence, latest first
};

class NgramSession : public Session {
 public:
  NgramSession(int32_t min_length, int32_t max_length) : index_(min_length, max_length) {}

  void Append(std::span<const int32_t> token_ids) override;
  void Want(const TreeRequest& tree_request) override { allowed_ = tree_request.allowed; }
  uint64_t position() const override { return index_.tokens().size(); }
  speculation::TokenTree Propose(int32_t node_budget) const;

 private:
  NgramIndex index_;
  NgramMatch match_;  // of the sequence's end
  speculation::MatchConfidence confidence_;
  speculation::AllowedTokens allowed_;  // as the next token
};

}  // namespace foretoken::proposer
