// SPDX-License-Identifier: Apache-2.0
// The lies of a lying proposer. Each changes a valid tree so that it breaks one rule of the protocol.
#pragma once

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "foretoken/v1/proposal.pb.h"

namespace foretoken::testing {

// `tell` takes a tree with at least two nodes, a session and a position.
struct Lie {
  std::string name;
  std::function<void(v1::TokenTree&)> tell;
};

inline void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }

// Claims that every node was sampled from its own distribution, in which it has this probability.
inline void Sample(float prob, v1::TokenTree& tree) {
  tree.set_draw_method(v1::DRAW_METHOD_SAMPLED);
  tree.mutable_distribution_indices()->Resize(tree.token_ids_size() + 1, -1);
  for (int i = 0; i < tree.token_ids_size(); ++i) {
    v1::SparseDistribution& draft = *tree.add_draft_probs();
    draft.add_token_ids(tree.token_ids(i));
    draft.add_probabilities(prob);
    tree.set_distribution_indices(tree.parents(i) + 1, i);
  }
}

inline void Lengthen(int num_nodes, v1::TokenTree& tree) {
  for (int i = 0; i < num_nodes; ++i) {
    tree.add_token_ids(1);
    tree.add_parents(tree.parents_size() - 1);
    tree.add_chances(1);
  }
}

inline std::vector<Lie> Lies(uint32_t num_tokens) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return {{"ForwardParent", [](v1::TokenTree& tree) { tree.set_parents(0, 1); }},
          {"OwnParent", [](v1::TokenTree& tree) { tree.set_parents(1, 1); }},
          {"ParentBelowTheRoot", [](v1::TokenTree& tree) { tree.set_parents(1, -2); }},
          {"NodeWithoutParent", [](v1::TokenTree& tree) { tree.mutable_parents()->RemoveLast(); }},
          {"ParentsOfNoNodes", [](v1::TokenTree& tree) { tree.clear_token_ids(); }},
          {"TokenBeyondTheVocabulary", [=](v1::TokenTree& tree) { tree.set_token_ids(1, num_tokens); }},
          {"TokenBeyondInt32", [](v1::TokenTree& tree) { tree.set_token_ids(1, 0xFFFFFFFFu); }},
          {"NanChance", [](v1::TokenTree& tree) { tree.set_chances(0, kNan); }},
          {"InfiniteChance", [](v1::TokenTree& tree) { tree.set_chances(1, kInfinity); }},
          {"NegativeChance", [](v1::TokenTree& tree) { tree.set_chances(1, -.5f); }},
          {"ChanceAboveOne", [](v1::TokenTree& tree) { tree.set_chances(0, 2); }},
          {"NoChances", [](v1::TokenTree& tree) { tree.clear_chances(); }},
          {"TwinSiblings",
           [](v1::TokenTree& tree) {
             tree.set_parents(1, -1);
             tree.set_token_ids(1, tree.token_ids(0));
           }},
          {"TooManyNodes", [](v1::TokenTree& tree) { Lengthen(1100, tree); }},
          {"HugeTree", [](v1::TokenTree& tree) { Lengthen(200'000, tree); }},
          {"NegativeDraftProb", [](v1::TokenTree& tree) { Sample(-.5f, tree); }},
          {"NanDraftProb", [](v1::TokenTree& tree) { Sample(kNan, tree); }},
          {"DraftProbsAboveOne", [](v1::TokenTree& tree) { Sample(1.5f, tree); }},
          {"ChildThatCannotHaveBeenSampled", [](v1::TokenTree& tree) { Sample(0, tree); }},
          {"DraftProbsOfGuesses",
           [](v1::TokenTree& tree) {
             Sample(1, tree);
             tree.set_draw_method(v1::DRAW_METHOD_POINT);
           }},
          {"SessionThatNeverWas", [](v1::TokenTree& tree) { tree.set_session_id(1'000'000'000); }},
          {"PositionAhead", [](v1::TokenTree& tree) { tree.set_position(tree.position() + 1); }},
          {"PositionFarAhead", [](v1::TokenTree& tree) { tree.set_position(std::numeric_limits<uint64_t>::max()); }}};
}

}  // namespace foretoken::testing
