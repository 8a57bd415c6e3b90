// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix_growth.h"

#include <algorithm>
#include <utility>

#include "proposer_service/proposer/frontier.h"

namespace foretoken::proposer {
namespace {

using speculation::kRootParent;
using speculation::TokenTree;

constexpr float kMaxChance = 0.999f;
// The most children of a node from one source. Further children are too rare to be worth a row.
constexpr int32_t kMaxChildren = 4;

// The position of a node in each source's suffix tree; unset: the source does not have the path.
using Places = std::array<std::optional<SuffixCursor>, kNumSuffixSources>;

class Growth {
 public:
  Growth(const std::array<SuffixSource, kNumSuffixSources>& sources, const WantedTree& wanted,
         const SuffixOptions& options)
      : sources_(sources), allowed_(wanted.allowed), frontier_(wanted.node_budget, options.min_path_chance) {
    tree_.nodes.reserve(wanted.node_budget);
    places_.reserve(wanted.node_budget + 1);
    for (int32_t s = 0; s < kNumSuffixSources; ++s) {
      max_depths_[s] = static_cast<int32_t>(options.depth_per_match * static_cast<float>(sources[s].match.depth));
    }
  }

  TokenTree Grow() {
    Places& root = places_.emplace_back();
    for (int32_t s = 0; s < kNumSuffixSources; ++s) {
      if (sources_[s].match.depth > 0) root[s] = sources_[s].match;
    }
    Expand({.node_idx = kRootParent, .path_chance = 1, .depth = 0});
    while (!frontier_.empty() && frontier_.nodes_left() > 0) {
      const Candidate best = frontier_.Take();
      tree_.Append({.token_id = best.token_id, .parent = best.parent, .chance = best.chance});
      if (frontier_.nodes_left() == 0) break;
      PlaceNode(best);
      Expand({.node_idx = tree_.num_nodes() - 1, .path_chance = best.path_chance, .depth = best.depth});
    }
    return std::move(tree_);
  }

 private:
  // How a source's cursor moves from a node to its child: it enters an edge, or takes one step inside its current edge.
  struct Way {
    enum class Kind : uint8_t { kNone, kEdge, kStep } kind = Kind::kNone;
    SuffixEdge edge = {};
  };

  struct Child {
    int32_t token_id = 0;
    float chance = 0;
    std::array<Way, kNumSuffixSources> ways;
  };

  // A node that may join the tree.
  struct Candidate {
    float path_chance = 0;
    float chance = 0;
    int32_t parent = kRootParent;
    int32_t token_id = 0;
    int32_t depth = 0;
    std::array<Way, kNumSuffixSources> ways;
  };

  struct Expansion {
    int32_t node_idx;
    float path_chance;
    int32_t depth;
  };

  void PlaceNode(const Candidate& node) {
    Places& places = places_.emplace_back();
    for (int32_t s = 0; s < kNumSuffixSources; ++s) {
      if (node.ways[s].kind == Way::Kind::kNone || node.depth >= max_depths_[s]) continue;
      places[s] = places_[node.parent + 1][s];
      if (node.ways[s].kind == Way::Kind::kEdge) {
        sources_[s].tree->Enter(*places[s], node.ways[s].edge);
      } else {
        sources_[s].tree->Step(*places[s]);
      }
    }
  }

  // Offers a node's children to the frontier.
  void Expand(const Expansion& node) {
    children_.clear();
    float chance_left = 1;
    const bool second_first = sources_[1].match.depth > sources_[0].match.depth;
    for (const int32_t s : {second_first ? 1 : 0, second_first ? 0 : 1}) {
      if (places_[node.node_idx + 1][s].has_value()) chance_left *= 1 - AddChildren(node, s, chance_left);
    }
    for (const Child& child : children_) {
      const float chance = std::min(child.chance, kMaxChance);
      frontier_.Offer({.path_chance = node.path_chance * chance,
                       .chance = chance,
                       .parent = node.node_idx,
                       .token_id = child.token_id,
                       .depth = node.depth + 1,
                       .ways = child.ways});
    }
  }

  bool MayFollow(const Expansion& node, int32_t token_id) const {
    return node.node_idx != kRootParent || allowed_.Allows(token_id);
  }

  // Adds a node's continuations in a source. Returns the source's confidence that the next token is among them.
  float AddChildren(const Expansion& node, int32_t s, float chance_left) {
    const SuffixSource& source = sources_[s];
    SuffixCursor& place = *places_[node.node_idx + 1][s];
    if (source.is_own_text && !place.at_node() && source.tree->NextToken(place) == SuffixTree::kEndOfText) {
      place = source.match;
    }
    const float confidence = source.confidence->Estimate(source.match.depth + node.depth, place.count);
    if (!place.at_node()) {
      const int32_t token_id = source.tree->NextToken(place);
      if (token_id == SuffixTree::kEndOfText || !MayFollow(node, token_id)) return 0;
      AddChild({.kind = Way::Kind::kStep}, s, token_id, chance_left * confidence);
      return confidence;
    }
    // Most likely first. Continuations that may not come leave their share to the others.
    std::array<SuffixEdge, kMaxChildren> edges;
    int32_t num_edges = 0;
    uint32_t count = place.count;
    for (const SuffixEdge& edge : source.tree->Edges(place)) {
      if (num_edges == kMaxChildren) break;
      if (MayFollow(node, edge.token_id)) {
        edges[num_edges++] = edge;
      } else {
        count -= edge.count;
      }
    }
    if (num_edges == 0) return 0;
    const float share = chance_left * confidence / static_cast<float>(count);
    for (const SuffixEdge& edge : std::span(edges).first(num_edges)) {
      const float chance = share * static_cast<float>(edge.count);
      if (node.path_chance * chance > frontier_.WorthAdding()) source.tree->Prefetch(edge);
      AddChild({.kind = Way::Kind::kEdge, .edge = edge}, s, edge.token_id, chance);
    }
    return confidence;
  }

  void AddChild(const Way& way, int32_t s, int32_t token_id, float chance) {
    auto child =
        std::find_if(children_.begin(), children_.end(), [&](const Child& c) { return c.token_id == token_id; });
    if (child == children_.end()) child = children_.insert(child, {.token_id = token_id});
    child->chance += chance;
    child->ways[s] = way;
  }

  const std::array<SuffixSource, kNumSuffixSources>& sources_;
  const speculation::AllowedTokens& allowed_;
  std::array<int32_t, kNumSuffixSources> max_depths_;
  TokenTree tree_;
  std::vector<Places> places_;  // of the root, then of the nodes
  std::vector<Child> children_;
  Frontier<Candidate> frontier_;
};

}  // namespace

TokenTree GrowSuffixTree(const std::array<SuffixSource, kNumSuffixSources>& sources, const WantedTree& wanted,
                         const SuffixOptions& options) {
  if (wanted.node_budget == 0) return {};
  return Growth(sources, wanted, options).Grow();
}

}  // namespace foretoken::proposer
