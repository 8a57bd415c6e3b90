// SPDX-License-Identifier: Apache-2.0
// A sequence's session at the suffix proposer: a suffix tree of the sequence's tokens, its match in the memory of
// finished outputs, and its output. The memory learns the output when the session ends. suffix.h explains the method.
#pragma once

#include <functional>

#include "proposer_service/proposer/proposer.h"
#include "proposer_service/suffix/suffix.h"
#include "proposer_service/suffix/suffix_match.h"

namespace foretoken::proposer {

class SuffixSession : public Session {
 public:
  using Learn = std::function<void(SuffixText)>;

  // The options and the memory outlive the session. The session calls `learn` once, with the output, when it ends.
  SuffixSession(const SuffixOptions& options, const SuffixMemory& memory, SuffixOwner owner, Learn learn);
  ~SuffixSession() override;

  void Append(std::span<const int32_t> token_ids) override;
  void Want(const TreeRequest& tree_request) override;
  uint64_t position() const override { return position_; }
  speculation::TokenTree Propose(int32_t node_budget);

 private:
  // The last tokens of the opening context that are learned with the output.
  static constexpr size_t kLeadTokens = 8;

  const SuffixOptions& options_;
  const SuffixMemory& memory_;
  const SuffixOwner owner_;
  const Learn learn_;
  uint64_t position_ = 0;
  bool in_opening_ = true;
  speculation::AllowedTokens allowed_;  // as the next token
  std::vector<int32_t> output_;         // with its lead tokens in front
  TokenWindow window_;
  SuffixTree tree_;
  NodeIdx root_;
  SuffixConfidence confidence_;  // in the matches of tree_
  SharedSuffixMatch shared_match_;
};

}  // namespace foretoken::proposer
