// SPDX-License-Identifier: Apache-2.0
// Guesses for the proposers of tests: right, wrong, or random.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guessing_proposer.h"

namespace foretoken::testing {

// Returns the prompt and the output of every sample of a run.
inline std::vector<std::vector<int32_t>> WholeTexts(const Results& results,
                                                    const std::vector<verifier::GenerationRequest>& requests) {
  std::map<verifier::Ticket, const std::vector<int32_t>*> prompts;
  for (const verifier::GenerationRequest& request : requests) prompts[request.ticket] = &request.prompt;
  std::vector<std::vector<int32_t>> texts;
  for (const auto& [key, result] : results) {
    if (!prompts.contains(key.first)) continue;
    texts.push_back(*prompts[key.first]);
    texts.back().insert(texts.back().end(), result.token_ids.begin(), result.token_ids.end());
  }
  return texts;
}

inline bool GoesOn(std::span<const int32_t> text, std::span<const int32_t> context) {
  return text.size() > context.size() && std::equal(context.begin(), context.end(), text.begin());
}

inline int32_t AddGuess(int32_t token_id, int32_t parent, float chance, speculation::TokenTree* tree) {
  return tree->Append({.token_id = token_id, .parent = parent, .chance = chance});
}

// Guesses the continuation of the first text that begins with the context, among wrong siblings below `num_tokens`.
inline Guess Oracle(std::vector<std::vector<int32_t>> texts, int32_t num_tokens = 4000) {
  return [texts = std::move(texts), num_tokens](std::span<const int32_t> context, int32_t node_budget) {
    speculation::TokenTree tree;
    const auto text = std::ranges::find_if(texts, [&](const auto& text) { return GoesOn(text, context); });
    if (text == texts.end()) return tree;
    int32_t parent = speculation::kRootParent;
    for (size_t i = context.size(); i < text->size() && tree.num_nodes() + 2 <= node_budget; ++i) {
      AddGuess(((*text)[i] + 1) % num_tokens, parent, 0.2f, &tree);
      parent = AddGuess((*text)[i], parent, 0.7f, &tree);
    }
    return tree;
  };
}

// Guesses always wrong: no text that begins with the context continues with one of the root's children. Below each
// wrong child stands the truth, once from its first token on and once from its second. So a walk that enters a wrong
// child shows.
inline Guess AlwaysWrong(std::vector<std::vector<int32_t>> texts) {
  return [texts = std::move(texts)](std::span<const int32_t> context, int32_t node_budget) {
    std::set<int32_t> right;
    const std::vector<int32_t>* text = nullptr;
    for (const std::vector<int32_t>& candidate : texts) {
      if (!GoesOn(candidate, context)) continue;
      text = &candidate;
      right.insert(candidate[context.size()]);
    }
    speculation::TokenTree tree;
    if (text == nullptr) return tree;
    int32_t wrong = *right.begin();
    for (size_t skipped = 0; skipped < 2; ++skipped) {
      do wrong = (wrong + 1) % 4000;
      while (right.contains(wrong));
      int32_t parent = AddGuess(wrong, speculation::kRootParent, 0.5f, &tree);
      for (size_t i = context.size() + skipped; i < std::min(text->size(), context.size() + 4); ++i) {
        parent = AddGuess((*text)[i], parent, 0.9f, &tree);
      }
    }
    return tree.num_nodes() <= node_budget ? tree : speculation::BestNodes(tree, node_budget);
  };
}

inline Guess Random(uint32_t seed) {
  auto random = std::make_shared<RandomValues>(seed);
  return [random](std::span<const int32_t>, int32_t node_budget) {
    speculation::TokenTree tree;
    for (int32_t node = 0; node < std::min(node_budget, 12); ++node) {
      const int32_t token_id = node * 300 + random->Below(300);  // siblings have different tokens
      AddGuess(token_id, random->Below(node + 1) - 1, 0.9f, &tree);
    }
    return tree;
  };
}

}  // namespace foretoken::testing
