// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/byte_trie.h"

namespace foretoken::tokenizer {

ByteTrie::ByteTrie(std::vector<std::pair<std::string, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // The entries [begin, end) share the first `depth` bytes, which lead to the node.
  struct Range {
    size_t begin;
    size_t end;
    size_t depth;
  };
  std::vector<Range> ranges = {{0, entries.size(), 0}};  // of each node
  nodes_.emplace_back();
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && entries[begin].first.size() == depth) {
      nodes_[node].is_key = true;
      nodes_[node].value = entries[begin].second;
    }
    while (begin < end && entries[begin].first.size() == depth) ++begin;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = entries[begin].first[depth];
      size_t child_end = begin;
      while (child_end < end && entries[child_end].first[depth] == byte) ++child_end;
      if (node == 0) root_children_[static_cast<uint8_t>(byte)] = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      ranges.push_back({begin, child_end, depth + 1});
      ++nodes_[node].num_children;
      begin = child_end;
    }
  }
}

}  // namespace foretoken::tokenizer
