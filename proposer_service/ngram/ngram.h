// SPDX-License-Identifier: Apache-2.0
// The n-gram proposer: a sequence goes on as it did where its last tokens occurred before.
//
// Per session an index of the sequence's own n-grams (NgramIndex). The longest match predicts; the tokens that followed
// its latest occurrences are the children, and what chance they leave goes to shorter matches. A tree is grown best
// path chance first, every proposed token extending the match it came from, so a long match becomes a deep chain, and
// text that repeats itself is predicted beyond the end of the context.
//
// Chances. chance(x) = confidence(length) * weight(x) / sum of weights, where an occurrence weighs kRecency per later
// one. confidence(length), that the next token is among the continuations of a match of that length, is learned from
// the sequence itself: every appended token is a trial of the match before it. Until trials come in, a prior says that
// long matches are right and short ones are not.
//
// Cost: appending a token O(max_length); a proposal O(nodes). Memory: see NgramIndex, times the context.
// Source: prompt lookup decoding; the blending is that of PPM (Cleary and Witten, 1984).
#pragma once

#include "absl/status/status.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

struct NgramOptions {
  int32_t min_length = 1;  // tokens of the shortest match that predicts; at least 1
  int32_t max_length = 8;  // tokens of the longest indexed n-gram; at most NgramIndex::kMaxLength
};

// INVALID_ARGUMENT names the field.
absl::Status Validate(const NgramOptions& options);

class NgramProposer : public Proposer {
 public:
  // The options must be valid.
  explicit NgramProposer(const NgramOptions& options);

  const ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<Session> Open(const SessionIntroduction& introduction) override;
  std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) override;

 private:
  NgramOptions options_;
  ProposerDescription description_;
};

}  // namespace foretoken::proposer
