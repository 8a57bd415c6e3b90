// SPDX-License-Identifier: Apache-2.0
// The edges below the nodes of a suffix tree. The edges of a node stand in descending order of counts, so a reader
// finds the likeliest continuations of a string first.
//
// Nearly all nodes have a few edges. Such edges lie side by side in one pool, in runs of a few fixed lengths, and a
// search begins at the front. Free runs are used again. A node of more than kMaxRun edges gets a list of its own with a
// hash table. When a node has lost half of its run's edges, or three quarters of its list's, it gets a smaller one.
//
// Cost: Find is one or two cache misses. Memory: 12 bytes per edge and about a fifth more in free runs; in long lists
// up to 20 bytes more. Threads: as std::vector. Pointers to edges hold until the next change of the same node's edges.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "proposer_service/suffix/growing_array.h"
#include "proposer_service/suffix/suffix_node.h"

namespace foretoken::proposer {

class SuffixEdges {
 public:
  static constexpr int32_t kMaxRun = 24;

  // Gives a new node its empty set of edges.
  static void Init(SuffixNode& node);
  // Frees the memory of a node's edges.
  void Release(SuffixNode& node);

  // In descending order of counts.
  std::span<const SuffixEdge> Get(const SuffixNode& node) const;
  // Null: the node has no such edge.
  SuffixEdge* Find(const SuffixNode& node, int32_t token_id);
  const SuffixEdge* Find(const SuffixNode& node, int32_t token_id) const;
  // The address that Find reads first.
  const void* Place(const SuffixNode& node) const;

  // Adds an edge. The node must have no edge with this token.
  void Add(SuffixNode& node, const SuffixEdge& edge);
  // Count one occurrence more or less, and return the edge, which may have moved. Decrement takes counts of at least 2.
  SuffixEdge* Increment(SuffixNode& node, SuffixEdge* edge);
  SuffixEdge* Decrement(SuffixNode& node, SuffixEdge* edge);
  void Remove(SuffixNode& node, SuffixEdge* edge);

  // Bytes of all edges and runs, free runs included.
  size_t num_bytes() const;

 private:
  // The edges of a node that has more than a run holds.
  class LongList;
  static constexpr uint8_t kIsLong = 0xFF;
  static constexpr std::array<uint8_t, 9> kRunLengths = {1, 2, 3, 4, 6, 8, 12, 16, kMaxRun};
  static constexpr uint32_t kNoRun = 0xFFFFFFFF;

  struct Deleter {
    void operator()(LongList* list) const;
  };

  std::span<SuffixEdge> Mutable(const SuffixNode& node);
  void Swap(const SuffixNode& node, SuffixEdge* a, SuffixEdge* b);
  uint32_t TakeRun(int32_t run_class);
  void ReturnRun(int32_t run_class, uint32_t place);
  void MakeLong(SuffixNode& node);
  void MoveToRun(SuffixNode& node);

  GrowingArray<SuffixEdge> runs_;
  // The count of a free run's first edge is the place of the next free run.
  std::array<uint32_t, kRunLengths.size()> free_runs_ = {kNoRun, kNoRun, kNoRun, kNoRun, kNoRun,
                                                         kNoRun, kNoRun, kNoRun, kNoRun};
  std::vector<std::unique_ptr<LongList, Deleter>> long_lists_;
  std::vector<uint32_t> free_long_lists_;
};

}  // namespace foretoken::proposer
