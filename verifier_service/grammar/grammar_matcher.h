// SPDX-License-Identifier: Apache-2.0
// Follows one output through its grammar and says which tokens may come next. It goes back as easily as forward, so it
// can stand at any node of a token tree.
//
//   GrammarMatcher matcher(grammar);
//   matcher.FillMask(mask);            // before the first token
//   FT_CHECK(matcher.Accept(token));   // for every token of the output
//   VisitAllowed(tree, matcher, [&](int32_t node_idx) { matcher.FillMask(masks[node_idx]); });  // below the output
//
// Time: Accept some microseconds. FillMask depends on the grammar: in a vocabulary of 128k ids some microseconds for a
// regular expression, tens of them for JSON, and milliseconds for bounded repetitions of wide classes in a grammar, or
// in an expression too large for one automaton. Both give up when a text has very many parses.
// That counts parser states, not time, so the same text gives up at the same place on any machine, and with any
// guesses. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/speculation/token_tree.h"
#include "verifier_service/grammar/grammar.h"

namespace foretoken::verifier {

class GrammarMatcher {
 public:
  static constexpr int64_t kMaxWork = int64_t{1} << 22;    // parser states that one call looks at
  static constexpr int64_t kMaxStates = int64_t{1} << 21;  // parser states of all accepted tokens together

  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar);
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;
  ~GrammarMatcher();

  // Returns false, and stays where it is, if the token cannot come next, or if it gave up.
  bool Accept(int32_t token_id);
  // Takes back the last tokens.
  void Rollback(int32_t num_tokens);
  // Sets bit id % 32 of word id / 32 for the ids that can come next, and clears the others. [ceil(V / 32)]
  // Clears all if it gave up.
  void FillMask(std::span<uint32_t> mask);
  // Whether the last Accept or FillMask went beyond kMaxWork or kMaxStates.
  bool has_given_up() const;
  // An end token was accepted, so nothing can come next.
  bool has_ended() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Visits the nodes that the grammar allows, depth first, with the matcher behind each node. The root of the tree is the
// last accepted token, where the matcher stands before and after. Nothing below a forbidden node is looked at, so the
// time is one Accept for each node whose parent is allowed, in whatever order the nodes are stored.
void VisitAllowed(const speculation::TokenTree& tree, GrammarMatcher& matcher,
                  absl::FunctionRef<void(int32_t node_idx)> visit);

}  // namespace foretoken::verifier
