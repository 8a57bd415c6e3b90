// SPDX-License-Identifier: Apache-2.0
// The nodes and edges of a suffix tree (suffix_tree.h). They refer to each other by 31-bit numbers, so that a token
// costs few bytes.
#pragma once

#include <cstdint>

namespace foretoken::proposer {

// A position in the tree's text.
using TextPos = uint32_t;
using NodeIdx = uint32_t;

inline constexpr NodeIdx kNoNode = 0xFFFFFFFF;

// The target of an edge: a node, or a leaf. A leaf is only the text position where its string begins.
class SuffixTarget {
 public:
  static SuffixTarget Node(NodeIdx node) { return SuffixTarget(node); }
  static SuffixTarget Leaf(TextPos begin) { return SuffixTarget(begin | kLeafBit); }
  SuffixTarget() = default;

  bool is_leaf() const { return (bits_ & kLeafBit) != 0; }
  NodeIdx node() const { return bits_; }
  TextPos leaf_begin() const { return bits_ & ~kLeafBit; }

 private:
  static constexpr uint32_t kLeafBit = 0x80000000;
  explicit SuffixTarget(uint32_t bits) : bits_(bits) {}

  uint32_t bits_ = 0;
};

// An edge. Its first token identifies it, and the text holds the rest of its label.
struct SuffixEdge {
  int32_t token_id;
  uint32_t count;  // occurrences of the string that ends with token_id
  SuffixTarget target;
};
static_assert(sizeof(SuffixEdge) == 12);

struct SuffixNode {
  TextPos begin;         // of the latest occurrence of the node's string
  NodeIdx link;          // the node of the string without its first token; kNoNode: not known
  uint32_t count;        // occurrences of the string
  uint32_t edges_place;  // SuffixEdges owns this field and the next two
  uint8_t num_edges;
  uint8_t edges_class;
  uint16_t depth;  // tokens of the string
};
static_assert(sizeof(SuffixNode) == 20);

}  // namespace foretoken::proposer
