// SPDX-License-Identifier: Apache-2.0
// Shapes of trees without tokens: a node's number of children follows from its place alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace foretoken::testing {

struct TreeShape {
  std::vector<TreeShape> children;
};

// True if the node at these ranks has more than `num_children` children.
inline bool HasChild(const TreeShape& shape, std::span<const int32_t> ranks, size_t num_children) {
  const TreeShape* node = &shape;
  for (const int32_t rank : ranks) node = &node->children[rank];
  return num_children < node->children.size();
}

// Every node above the depth has the same number of children.
inline TreeShape FullShape(int32_t depth, int32_t num_children) {
  TreeShape shape;
  if (depth > 0) shape.children.assign(num_children, FullShape(depth - 1, num_children));
  return shape;
}

// Returns every shape of at most this depth with at most `max_children` children per node.
inline std::vector<TreeShape> AllShapes(int32_t depth, int32_t max_children) {
  std::vector<TreeShape> shapes = {TreeShape()};
  if (depth == 0) return shapes;
  const std::vector<TreeShape> below = AllShapes(depth - 1, max_children);
  size_t begin = 0;
  for (int32_t num_children = 1; num_children <= max_children; ++num_children) {
    const size_t end = shapes.size();
    for (; begin < end; ++begin) {
      for (const TreeShape& child : below) {
        shapes.push_back(shapes[begin]);
        shapes.back().children.push_back(child);
      }
    }
  }
  return shapes;
}

// Returns a name like (()(())).
inline std::string NameOf(const TreeShape& shape) {
  std::string name = "(";
  for (const TreeShape& child : shape.children) name += NameOf(child);
  return name + ")";
}

}  // namespace foretoken::testing
