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

bool GrammarWalk::MoveTo(int32_t node_idx) {
  wanted_.clear();
  for (int32_t node = node_idx; node != speculation::kRootParent; node = tree_.nodes[node].parent) {
    wanted_.push_back(node);
  }
  std::ranges::reverse(wanted_);
  const auto common = std::ranges::mismatch(path_, wanted_).in1 - path_.begin();
  matcher_.Rollback(static_cast<int32_t>(path_.size() - common));
  path_.resize(common);
  for (size_t i = common; i < wanted_.size(); ++i) {
    if (!matcher_.Accept(tree_.nodes[wanted_[i]].token_id)) return false;
    path_.push_back(wanted_[i]);
  }
  return true;
}

std::vector<int32_t> AllowedNodeIdx(const speculation::TokenTree& tree, GrammarMatcher& matcher) {
  std::vector<int32_t> allowed;
  allowed.reserve(tree.nodes.size());
  GrammarWalk walk(tree, matcher);
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    if (walk.MoveTo(node)) allowed.push_back(node);
  }
  return allowed;
}

}  // namespace foretoken::verifier
