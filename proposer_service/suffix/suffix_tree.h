// SPDX-License-Identifier: Apache-2.0
// A suffix tree that counts. It knows how often every string of at most max_depth tokens occurs in its texts, and the
// tokens that followed it. Texts come token by token. Each text belongs to a root, and the roots are separate trees in
// one memory: a search from one root finds no text of another. The tree can forget its oldest text.
//
// Example:
//   SuffixTree tree({.max_depth = 64});
//   const NodeIdx root = tree.AddRoot();
//   for (int32_t token_id : text) tree.Append(root, token_id);
//   SuffixCursor cursor = tree.AtRoot(root);
//   while (tree.Extend(cursor, next_token)) ...       // cursor.count: how often the string so far occurs
//
// Structure. A compact suffix tree, built from left to right with suffix links (Ukkonen 1995) and cut at max_depth. A
// leaf is a string that occurs once or reaches max_depth. It is only a text position inside its edge, so a text of n
// tokens makes at most n edges and n branching nodes. For code these are about 1.5 n and 0.5 n: some 40 bytes per
// token, text included. A trie, or a tree with a node per suffix, takes hundreds. A match advances by one token with
// two or three reads of memory, whatever its length. The continuations of a string stand side by side, the most
// frequent first. These reads take most of the time once the tree is larger than the caches. Sorted suffixes (arrays in
// generations) would take 8 bytes per token, but some 40 reads per search.
//
// Counts. The active match is the longest end of the growing text that occurs earlier. Its strings are not counted yet.
// The tree counts them when the match ends. So counts are exact after End, and before the active match: the count of a
// string is the number of positions where it begins. To count a suffix, the tree walks from the root to the suffix's
// end.
//
// Forgetting. The tree subtracts the counts of a text's suffixes and frees nodes and edges without a count. Every node
// and leaf refers to its latest occurrence, and the oldest text goes first, so the remaining nodes and leaves refer to
// the remaining texts.
//
// Cost: a token takes O(nodes on a path), amortised. AppendStep, EndStep and ForgetStep are parts of that work. Readers
// may read the tree between two steps, with new cursors. Threads: as std::vector.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "proposer_service/suffix/suffix_edges.h"
#include "proposer_service/suffix/token_window.h"

namespace foretoken::proposer {

// A string of the tree. A cursor is valid until the tree changes.
struct SuffixCursor {
  NodeIdx node = kNoNode;    // the last node on the path of the string
  SuffixTarget target = {};  // of the edge in which the string ends; unused if it ends at `node`
  TextPos begin = 0;         // the text position of an occurrence of the string
  uint32_t count = 0;        // occurrences of the string
  uint16_t depth = 0;        // tokens of the string
  uint16_t node_depth = 0;
  uint16_t target_depth = 0;  // kLeafDepth for a leaf

  static constexpr uint16_t kLeafDepth = 0xFFFF;
  bool at_node() const { return depth == node_depth; }
};

struct SuffixTreeOptions {
  int32_t max_depth = 64;  // the tree does not distinguish longer strings; at most kMaxDepth
  // The places for tokens. A text takes one more place than it has tokens. Append needs free_places() > 1.
  uint32_t max_tokens = 1u << 27;  // at most SuffixTree::kMaxTokens
};

class SuffixTree {
 public:
  static constexpr int32_t kMaxDepth = 1024;
  // Texts may come in such an order that runs of edges of each length are many in turn, and freed runs serve their own
  // length only. Of n places, at most n / (k - 1) nodes have k edges or more, and a run is more than half full. So all
  // runs together have at most 18 n edges, and 32-bit numbers must be enough for them.
  static constexpr uint32_t kMaxTokens = 1u << 27;
  static constexpr int32_t kEndOfText = -1;

  explicit SuffixTree(const SuffixTreeOptions& options);

  // --- building ---
  NodeIdx AddRoot();
  // The root must have no text.
  void RemoveRoot(NodeIdx root);

  // Appends to the growing text, which belongs to one root. Append is Push, then AppendStep until it returns true.
  void Append(NodeIdx root, int32_t token_id);
  void Push(NodeIdx root, int32_t token_id);
  bool AppendStep();
  // Ends the growing text and counts the rest of it. The next Append begins another text. End is EndStep until it
  // returns true.
  void End();
  bool EndStep();

  // Forgets the oldest ended text. ForgetOldest is ForgetStep until it returns true.
  void ForgetOldest();
  bool ForgetStep();

  size_t num_texts() const { return texts_.size(); }  // without the growing text
  uint32_t free_places() const { return max_tokens_ - used_places_; }
  // Of all texts. The end of the growing text counts as one token.
  size_t num_tokens() const { return used_places_ - texts_.size(); }
  // The ended texts, oldest first.
  NodeIdx RootOf(size_t text_idx) const { return texts_[text_idx].root; }
  std::vector<int32_t> CopyText(size_t text_idx) const;
  size_t num_bytes() const;

  // --- reading ---
  SuffixCursor AtRoot(NodeIdx root) const { return AtNode(root); }
  // Extends the string by one token. False: the longer string does not occur, or the tree does not distinguish it:
  // beyond max_depth a leaf knows its latest occurrence only.
  bool Extend(SuffixCursor& cursor, int32_t token_id) const;
  // Removes the first token of the string `path`, which the cursor stands for. False: the shorter string is not in the
  // tree, and the cursor is at the root. This happens between two steps of building, when the end of the growing text
  // is only partly in the tree.
  bool Shorten(SuffixCursor& cursor, NodeIdx root, std::span<const int32_t> path) const;
  // The edges of a cursor at a node.
  std::span<const SuffixEdge> Edges(const SuffixCursor& cursor) const { return edges_.Get(nodes_[cursor.node]); }
  // The token after a string that ends inside an edge; kEndOfText: the text ends there.
  int32_t NextToken(const SuffixCursor& cursor) const { return text_[Wrap(cursor.begin + cursor.depth)]; }
  // Extends the string along one of its edges, or by its next token.
  void Enter(SuffixCursor& cursor, const SuffixEdge& edge) const;
  void Step(SuffixCursor& cursor) const;
  // The longest end of the growing text that occurs earlier, at most max_depth tokens.
  const SuffixCursor& active() const { return active_; }
  int32_t max_depth() const { return max_depth_; }

  // Starts to load the memory that Enter will read.
  void Prefetch(const SuffixEdge& edge) const;

  // Whether counts, orders, labels and links agree. For tests.
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
  // Counts a suffix of the growing text. The first `depth` tokens of `path` are in the tree. If there is a next token,
  // the tree branches there.
  void CountSuffix(std::span<const int32_t> path, int32_t depth, std::optional<int32_t> next_token);
  void Split(SuffixEdge& edge, int32_t depth, TextPos begin, std::optional<int32_t> next_token);
  void ShortenActive(std::span<const int32_t> path);
  void LinkLastNode(NodeIdx node);
  void UncountSuffix(NodeIdx root, std::span<const int32_t> path);
  SuffixCursor AtNode(NodeIdx node) const;
  // Moves the cursor down from its node to the string `path`. The node's string must begin `path`. False: the tree does
  // not have the string.
  bool Descend(SuffixCursor& cursor, std::span<const int32_t> path) const;
  // Removes a node that no longer branches, and links its parent to the edge or leaf below it.
  void Tidy(NodeIdx parent, NodeIdx node, std::span<const int32_t> path);
  void FreeBelow(SuffixTarget target);
  bool CheckNode(NodeIdx node, NodeIdx root, std::vector<int32_t>& path) const;

  int32_t max_depth_;
  uint32_t max_tokens_;
  uint32_t num_places_;  // the length of text_, which is a ring
  uint32_t used_places_ = 0;
  GrowingArray<int32_t> text_;  // the texts, each followed by kEndOfText
  GrowingArray<SuffixNode> nodes_;
  SuffixEdges edges_;
  NodeIdx free_nodes_ = kNoNode;  // a list, chained by `link`
  uint32_t num_free_nodes_ = 0;
  std::deque<Text> texts_;

  // The growing text.
  NodeIdx root_ = kNoNode;
  TextPos text_begin_ = 0;
  TextPos end_ = 0;  // the place of the next token
  TokenWindow window_;
  SuffixCursor active_;
  NodeIdx unlinked_ = kNoNode;  // the last new node; the next suffix gives its link

  // The text that ForgetStep is forgetting.
  uint32_t num_forgotten_ = 0;
  std::vector<int32_t> forgotten_text_;
};

}  // namespace foretoken::proposer
