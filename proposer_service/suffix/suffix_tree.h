// SPDX-License-Identifier: Apache-2.0
// A suffix tree that counts: how often every string of at most max_depth tokens occurs in texts that come token by
// token, and what followed it. Texts belong to roots, trees of their own in one memory: what was read under one root is
// never found under another. The oldest texts can be forgotten, whoever's they are.
//
// Example:
//   SuffixTree tree({.max_depth = 64});
//   const NodeIdx root = tree.AddRoot();
//   for (int32_t token_id : text) tree.Append(root, token_id);
//   SuffixCursor cursor = tree.AtRoot(root);
//   while (tree.Extend(cursor, next_token)) ...       // cursor.count: how often what was followed occurs
//
// The structure. A compact suffix tree, built from left to right by suffix links (Ukkonen 1995) and cut at max_depth.
// Leaves, the strings that occur once or reach max_depth, are nothing but a text position inside their edge, so a text
// of n tokens makes at most n edges and n nodes that branch, in code about 1.5 n and 0.5 n: some 40 bytes per token,
// text included, where a trie or a node per suffix takes hundreds. A match advances by one token with two or three
// reads of memory however long it is, and the continuations of a string stand side by side, the most frequent first:
// these reads are what time goes into once the tree is larger than the caches. Sorted suffixes (arrays in generations)
// would need 8 bytes per token, but some 40 reads per search.
//
// Counts. The end of the text that still grows, as far as it occurs earlier, is not counted yet: the active match.
// Its strings are counted when it ends. So after End, and for all before the active match, counts are exact: a string's
// is the number of positions where it begins. Counting walks from the root down to where a suffix ends.
//
// Forgetting takes the counts of a text's suffixes back and frees what has none left. It works because every node and
// leaf points at its latest occurrence, and the oldest text goes first: whatever is left points at text that is left.
//
// Cost: a token O(nodes on a path), amortised; Settle and ForgetStep are the steps of it, between which a tree may be
// read, if cursors are made anew. Threads: as std::vector.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "proposer_service/suffix/suffix_edges.h"
#include "proposer_service/suffix/token_window.h"

namespace foretoken::proposer {

// A string of the tree. Good until the tree changes; what was only appended to is found again by Find.
struct SuffixCursor {
  NodeIdx node = kNoNode;    // the last node on the way
  SuffixTarget target = {};  // of the edge that the string ends inside of; nothing where it ends at `node`
  TextPos begin = 0;         // an occurrence of the string
  uint32_t count = 0;        // its occurrences
  uint16_t depth = 0;        // its tokens
  uint16_t node_depth = 0;
  uint16_t target_depth = 0;  // kLeafDepth for a leaf

  static constexpr uint16_t kLeafDepth = 0xFFFF;
  bool at_node() const { return depth == node_depth; }
};

struct SuffixTreeOptions {
  int32_t max_depth = 64;  // tokens of the longest strings told apart; at most kMaxDepth
  uint32_t max_tokens =
      (1u << 31) - 2;  // text kept at once, with one place more per text: Append needs free_places() > 1
};

class SuffixTree {
 public:
  static constexpr int32_t kMaxDepth = 1024;
  static constexpr int32_t kEndOfText = -1;

  explicit SuffixTree(const SuffixTreeOptions& options);

  // --- building ---
  NodeIdx AddRoot();
  // The root has no text left.
  void RemoveRoot(NodeIdx root);

  // Appends to the growing text, which is all one root's. Append is Push and Settle until it is true.
  void Append(NodeIdx root, int32_t token_id);
  void Push(NodeIdx root, int32_t token_id);
  bool Settle();
  // Ends the growing text: counts the rest of it, and the next Append begins another. It is EndStep until it is true.
  void End();
  bool EndStep();

  // Forgets the oldest text, which is not the growing one. It is ForgetStep until that is true.
  void ForgetOldest();
  bool ForgetStep();

  size_t num_texts() const { return texts_.size(); }  // without the growing one
  uint32_t free_places() const { return max_tokens_ - used_places_; }
  // Of all texts; the growing one's end counts as one.
  size_t num_tokens() const { return used_places_ - texts_.size(); }
  // The ended texts, oldest first.
  NodeIdx RootOf(size_t text_idx) const { return texts_[text_idx].root; }
  std::vector<int32_t> CopyText(size_t text_idx) const;
  size_t num_bytes() const;

  // --- reading ---
  SuffixCursor AtRoot(NodeIdx root) const { return AtNode(root); }
  // The string with one more token. False where it does not occur, or is longer than max_depth would tell apart: beyond
  // it a leaf's latest occurrence stands for all.
  bool Extend(SuffixCursor& cursor, int32_t token_id) const;
  // The string `path`, which the cursor stands for, without its first token. False, and the cursor at the root, where
  // that is not in the tree: between two steps of building the end of the growing text is only partly there.
  bool Shorten(SuffixCursor& cursor, NodeIdx root, std::span<const int32_t> path) const;
  // Follows the only edge or lists the edges at a node.
  std::span<const SuffixEdge> Edges(const SuffixCursor& cursor) const { return edges_.Get(nodes_[cursor.node]); }
  // The token after a string that ends inside an edge, kEndOfText where the text ends.
  int32_t NextToken(const SuffixCursor& cursor) const { return text_[Wrap(cursor.begin + cursor.depth)]; }
  // The string and one of its edges, or its next token.
  void Enter(SuffixCursor& cursor, const SuffixEdge& edge) const;
  void Step(SuffixCursor& cursor) const;
  // The longest end of the growing text that occurs before, at most max_depth tokens.
  const SuffixCursor& active() const { return active_; }
  int32_t max_depth() const { return max_depth_; }

  // Starts to load what Enter will read.
  void Prefetch(const SuffixEdge& edge) const;

  // Whether every rule of the structure holds, for tests: counts, order, labels, links, and nothing lost.
  bool CheckIntegrity() const;

 private:
  struct Text {
    NodeIdx root;
    TextPos begin;
    uint32_t length;
  };

  TextPos Wrap(uint32_t pos) const { return pos < num_places_ ? pos : pos - num_places_; }
  TextPos Before(TextPos pos, uint32_t distance) const {
    return pos >= distance ? pos - distance : pos + num_places_ - distance;
  }
  void Write(TextPos pos, int32_t token_id);
  NodeIdx NewNode(TextPos begin, int32_t depth, uint32_t count);
  void FreeNode(NodeIdx node);
  TextPos BeginOf(SuffixTarget target) const {
    return target.is_leaf() ? target.leaf_begin() : nodes_[target.node()].begin;
  }
  int32_t DepthOf(SuffixTarget target) const {
    return target.is_leaf() ? SuffixCursor::kLeafDepth : nodes_[target.node()].depth;
  }
  // Counts the suffix of the growing text whose first `depth` tokens, path's, are in the tree, and branches there to
  // the next token if there is one.
  void CountSuffix(std::span<const int32_t> path, int32_t depth, std::optional<int32_t> next_token);
  void Split(SuffixEdge& edge, int32_t depth, TextPos begin, std::optional<int32_t> next_token);
  void ShortenActive(std::span<const int32_t> path);
  void LinkLastNode(NodeIdx node);
  void UncountSuffix(NodeIdx root, std::span<const int32_t> path);
  SuffixCursor AtNode(NodeIdx node) const;
  // Goes down to the string `path`, of which the cursor's node is the beginning. False: it is not there.
  bool Descend(SuffixCursor& cursor, std::span<const int32_t> path) const;
  // Replaces a node that no longer branches by what is below it.
  void Tidy(NodeIdx parent, NodeIdx node, std::span<const int32_t> path);
  void FreeBelow(SuffixTarget target);
  bool CheckNode(NodeIdx node, NodeIdx root, std::vector<int32_t>& path) const;

  int32_t max_depth_;
  uint32_t max_tokens_;
  uint32_t num_places_;  // text_ is a ring of so many
  uint32_t used_places_ = 0;
  GrowingArray<int32_t> text_;  // texts, each with kEndOfText behind it
  GrowingArray<SuffixNode> nodes_;
  SuffixEdges edges_;
  NodeIdx free_nodes_ = kNoNode;  // chained by link
  uint32_t num_free_nodes_ = 0;
  std::deque<Text> texts_;

  // The growing text.
  NodeIdx root_ = kNoNode;
  TextPos text_begin_ = 0;
  TextPos end_ = 0;  // where the next token goes
  TokenWindow window_;
  SuffixCursor active_;
  NodeIdx unlinked_ = kNoNode;  // the last new node; the next suffix leads to what it links to

  // The text that is being forgotten.
  uint32_t num_forgotten_ = 0;
  std::vector<int32_t> forgotten_text_;
};

}  // namespace foretoken::proposer
