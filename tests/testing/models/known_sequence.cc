// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/known_sequence.h"

#include <algorithm>

#include "kernels/ops.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {

KnownSequence DecodePlainly(LoadedModel& model, const SequenceShape& shape) {
  const int64_t vocab_size = model.transformer->config().vocab_size;
  const auto num_nodes = static_cast<int32_t>(shape.parents.size());
  KnownSequence known{.tokens = RandomTokens(shape.num_tokens, vocab_size, shape.seed),
                      .node_tokens = RandomTokens(num_nodes, vocab_size, shape.seed + 1000),
                      .parents = shape.parents,
                      .node_rows = std::vector<Row>(num_nodes)};
  std::copy(shape.prefix.begin(), shape.prefix.end(), known.tokens.begin());
  const int32_t num_positions = shape.num_tokens + num_nodes;
  const std::vector<int32_t> blocks = Iota(0, (num_positions + kernels::kKvBlockSize - 1) / kernels::kKvBlockSize);
  known.rows = DecodeChain(model, {.tokens = known.tokens, .block_table = blocks});
  std::vector<bool> is_leaf(num_nodes, true);
  for (const int32_t parent : shape.parents) {
    if (parent >= 0) is_leaf[parent] = false;
  }
  for (int32_t leaf = 0; leaf < num_nodes; ++leaf) {
    if (!is_leaf[leaf]) continue;
    const std::vector<int32_t> path = PathTo(shape.parents, leaf);
    std::vector<int32_t> tokens;
    tokens.reserve(path.size());
    for (const int32_t node : path) tokens.push_back(known.node_tokens[node]);
    const auto rows = DecodeChain(model, {.tokens = tokens, .first_position = shape.num_tokens, .block_table = blocks});
    for (size_t i = 0; i < path.size(); ++i) known.node_rows[path[i]] = rows[i];
  }
  return known;
}

std::vector<int32_t> PathTo(const std::vector<int32_t>& parents, int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = parents[node]) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<int32_t> StarParents(int32_t num_nodes) { return std::vector<int32_t>(num_nodes, -1); }

std::vector<int32_t> ChainParents(int32_t num_nodes) { return Iota(-1, num_nodes); }

std::vector<int32_t> BushParents(int32_t num_nodes, int32_t num_children) {
  std::vector<int32_t> parents;
  parents.reserve(num_nodes);
  for (int32_t node = 0; node < num_nodes; ++node) parents.push_back(node / num_children - 1);
  return parents;
}

std::vector<int32_t> CombParents(int32_t num_nodes) {
  std::vector<int32_t> parents;
  parents.reserve(num_nodes);
  for (int32_t node = 0; node < num_nodes; ++node) parents.push_back(node < 2 ? -1 : (node - 2) / 2 * 2);
  return parents;
}

std::vector<int32_t> RandomParents(int32_t num_nodes, uint32_t seed) {
  RandomValues random(seed);
  std::vector<int32_t> parents;
  parents.reserve(num_nodes);
  for (int32_t node = 0; node < num_nodes; ++node) parents.push_back(random.Below(node + 1) - 1);
  return parents;
}

}  // namespace foretoken::testing
