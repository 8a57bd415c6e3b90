// SPDX-License-Identifier: Apache-2.0
// The n-gram proposer. It finds earlier occurrences of a sequence's last tokens and proposes the tokens that followed.
//
// Each session has an index of the sequence's own n-grams (NgramIndex). The longest match predicts first: the tokens
// that followed its latest occurrences become children. The chance that is left goes to shorter matches. The tree grows
// best path chance first, and every proposed token extends its match. So a long match becomes a deep chain, and a tree
// can follow repeating text beyond the end of the context.
//
// Chances. chance(x) = confidence(length) * weight(x) / sum of weights. The weight of an occurrence is kRecency to the
// power of the number of later occurrences. confidence(length) is the chance that the next token is among the
// continuations of a match of that length. The session learns it from its sequence: every appended token is a trial of
// the match before it. At the start a prior says that long matches are right and short matches are not.
//
// If only some tokens may come next, the root's matches are the longest ones that such a token follows.
//
// Cost: appending a token O(max_length); a proposal O(nodes). Memory: the context's tokens times the bytes in
// NgramIndex. Source: prompt lookup decoding; the chances are blended as in PPM (Cleary and Witten, 1984).
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
