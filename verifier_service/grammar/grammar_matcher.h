// SPDX-License-Identifier: Apache-2.0
// Follows one output through its grammar and says which tokens may come next. It goes back as easily as forward, so it
// can stand at any node of a token tree.
//
//   GrammarMatcher matcher(grammar);
//   matcher.FillMask(mask);            // before the first token
//   FT_CHECK(matcher.Accept(token));   // for every token of the output
//   GrammarWalk walk(tree, matcher);   // at the nodes of a tree below the output
//   if (walk.MoveTo(node)) matcher.FillMask(mask);
//
// Time: Accept some microseconds. FillMask depends on the grammar: tens of microseconds for JSON in a vocabulary of
// 128k ids, and milliseconds for bounded repetitions of wide classes. Both give up when a text has very many parses.
// That counts parser states, not time, so the same text gives up at the same place on any machine, and with any
// guesses. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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

// Moves a matcher over the nodes of a tree whose root is the last accepted token. At its end it moves the matcher back
// to the root. Nodes in depth-first order cost one token each.
class GrammarWalk {
 public:
  // Both must outlive the walk.
  GrammarWalk(const speculation::TokenTree& tree, GrammarMatcher& matcher) : tree_(tree), matcher_(matcher) {}
  GrammarWalk(const GrammarWalk&) = delete;
  GrammarWalk& operator=(const GrammarWalk&) = delete;
  ~GrammarWalk() { MoveTo(speculation::kRootParent); }

  // Moves the matcher behind this node, or to the root. Returns false if the grammar forbids the node or one of its
  // ancestors; then the matcher stands behind the last allowed ancestor.
  bool MoveTo(int32_t node_idx);

 private:
  const speculation::TokenTree& tree_;
  GrammarMatcher& matcher_;
  std::vector<int32_t> path_;    // accepted nodes, from the root's child to the matcher's place
  std::vector<int32_t> wanted_;  // the path to the node of MoveTo
};

// The indices of the nodes that the grammar allows, ascending.
std::vector<int32_t> AllowedNodeIdx(const speculation::TokenTree& tree, GrammarMatcher& matcher);

}  // namespace foretoken::verifier
