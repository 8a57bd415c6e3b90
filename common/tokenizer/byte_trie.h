// SPDX-License-Identifier: Apache-2.0
// Finds the strings, among many, that a text starts with.
//
//   ByteTrie trie({{"a", 0}, {"ab", 1}});
//   trie.ForEachPrefix("abc", [](size_t length, int32_t value) { ... });   // (1, 0), then (2, 1)
//
// Time: one search among a node's children per byte. Space: 16 bytes per node.
// Threads: immutable.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace foretoken::tokenizer {

class ByteTrie {
 public:
  // Of equal keys the first counts. The empty key is never found.
  explicit ByteTrie(std::vector<std::pair<std::string, int32_t>> entries);

  bool HasKeyThatStartsWith(char byte) const { return root_children_[static_cast<uint8_t>(byte)] != 0; }
  // Calls visit(length, value) for each key that the text starts with, the shortest first.
  template <typename Visit>
  void ForEachPrefix(absl::string_view text, Visit&& visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t child = FindChild(node, static_cast<uint8_t>(text[i]));
      if (child == 0) return;
      node = child;
      if (nodes_[node].is_key) visit(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;  // children lie side by side, ordered by byte
    uint16_t num_children = 0;
    uint8_t byte = 0;
    bool is_key = false;
    int32_t value = 0;
  };

  // 0 is the root, which is no node's child.
  uint32_t FindChild(uint32_t node, uint8_t byte) const {
    if (node == 0) return root_children_[byte];
    const auto begin = nodes_.begin() + nodes_[node].first_child;
    const auto end = begin + nodes_[node].num_children;
    const auto child = std::lower_bound(begin, end, byte, [](const Node& a, uint8_t b) { return a.byte < b; });
    return child == end || child->byte != byte ? 0 : static_cast<uint32_t>(child - nodes_.begin());
  }

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_children_{};
};

}  // namespace foretoken::tokenizer
