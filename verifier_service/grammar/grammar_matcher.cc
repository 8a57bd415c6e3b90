// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/grammar_matcher.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "verifier_service/grammar/grammar_parts.h"

namespace foretoken::verifier {

struct GrammarMatcher::Parts {
  bool MayCome(int32_t token_id) const;

  std::shared_ptr<const Grammar> grammar;
  xgrammar::TokenizerInfo tokens;
  xgrammar::GrammarMatcher matcher;
};

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar) {
  xgrammar::GrammarMatcher matcher(grammar->parts().compiled);
  matcher.SetBounds(kMaxWork, kMaxStates);
  xgrammar::TokenizerInfo tokens = grammar->parts().compiled.GetTokenizerInfo();
  parts_ = std::make_unique<Parts>(
      Parts{.grammar = std::move(grammar), .tokens = std::move(tokens), .matcher = std::move(matcher)});
}
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;
GrammarMatcher::~GrammarMatcher() = default;

// XGrammar would log each token that is never part of a form, and proposers may guess many.
bool GrammarMatcher::Parts::MayCome(int32_t token_id) const {
  const std::vector<std::string>& bytes = tokens.GetDecodedVocab();
  if (token_id < 0 || token_id >= std::ssize(bytes)) return false;
  return !bytes[token_id].empty() || std::ranges::count(matcher.GetStopTokenIds(), token_id) > 0;
}

bool GrammarMatcher::Accept(int32_t token_id) {
  try {
    return !has_ended() && parts_->MayCome(token_id) && parts_->matcher.AcceptToken(token_id);
  } catch (const std::exception&) {
    return false;
  }
}

void GrammarMatcher::Rollback(int32_t num_tokens) {
  if (num_tokens > 0) parts_->matcher.Rollback(num_tokens);
}

void GrammarMatcher::FillMask(std::span<uint32_t> mask) {
  std::ranges::fill(mask, 0u);
  if (has_ended()) return;
  int64_t num_words = static_cast<int64_t>(mask.size());
  DLTensor tensor = {.data = mask.data(),
                     .device = {kDLCPU, 0},
                     .ndim = 1,
                     .dtype = xgrammar::GetBitmaskDLType(),
                     .shape = &num_words,
                     .strides = nullptr,
                     .byte_offset = 0};
  try {
    // XGrammar says in its result whether the mask forbids an id. It fills the mask in any case.
    parts_->matcher.FillNextTokenBitmask(&tensor);
    if (has_given_up()) std::ranges::fill(mask, 0u);
  } catch (const std::exception&) {
    std::ranges::fill(mask, 0u);  // the draw then finds no token and fails the request
  }
}

bool GrammarMatcher::has_given_up() const { return parts_->matcher.HasGivenUp(); }

bool GrammarMatcher::has_ended() const { return parts_->matcher.IsTerminated(); }

void VisitAllowed(const speculation::TokenTree& tree, GrammarMatcher& matcher,
                  absl::FunctionRef<void(int32_t node_idx)> visit) {
  std::vector<int32_t> depths(tree.nodes.size());                 // [N] tokens above the node
  std::vector<std::vector<int32_t>> children(tree.nodes.size());  // [N] the last child first
  std::vector<int32_t> waiting;                                   // the next node comes last
  for (int32_t node = tree.num_nodes() - 1; node >= 0; --node) {
    const int32_t parent = tree.nodes[node].parent;
    (parent == speculation::kRootParent ? waiting : children[parent]).push_back(node);
  }
  int32_t num_accepted = 0;
  while (!waiting.empty()) {
    const int32_t node = waiting.back();
    waiting.pop_back();
    matcher.Rollback(num_accepted - depths[node]);
    num_accepted = depths[node];
    if (!matcher.Accept(tree.nodes[node].token_id)) continue;
    ++num_accepted;
    visit(node);
    for (const int32_t child : children[node]) depths[child] = num_accepted;
    waiting.insert(waiting.end(), children[node].begin(), children[node].end());
  }
  matcher.Rollback(num_accepted);
}

}  // namespace foretoken::verifier
