// SPDX-License-Identifier: Apache-2.0
// The edges below the nodes of a suffix tree, each node's in descending order of counts, so that the likeliest
// continuations of a string are the first ones read.
//
// Nearly all nodes have a few edges: those lie side by side in one pool, in runs of a few fixed lengths that are used
// again when they are free, and are searched from the front. A node of more than kMaxRun edges gets a list of its own
// with a hash table.
//
// Cost: Find is one or two cache misses. Memory: 12 bytes per edge and about a fifth that waits to be used; in long
// lists up to 20 more. Threads: as std::vector. Pointers to edges hold until the next change of the same node's edges.
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

  // Makes the edges of a new node: none.
  static void Init(SuffixNode& node);
  // Takes the memory of a node's edges back.
  void Release(SuffixNode& node);

  // Descending counts.
  std::span<const SuffixEdge> Get(const SuffixNode& node) const;
  // Null where there is none.
  SuffixEdge* Find(const SuffixNode& node, int32_t token_id);
  const SuffixEdge* Find(const SuffixNode& node, int32_t token_id) const;
  // Where Find will look first.
  const void* Place(const SuffixNode& node) const;

  // The edge's token must be new to the node.
  void Add(SuffixNode& node, const SuffixEdge& edge);
  // Counts one occurrence more or less; what they return is the edge, which may have moved. Decrement takes counts of 2
  // and more.
  SuffixEdge* Increment(SuffixNode& node, SuffixEdge* edge);
  SuffixEdge* Decrement(SuffixNode& node, SuffixEdge* edge);
  void Remove(SuffixNode& node, SuffixEdge* edge);

  // Of everything that was ever used at once.
  size_t num_bytes() const;

 private:
  // More edges than a run holds.
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

  GrowingArray<SuffixEdge> runs_;
  // Free runs are chained by the count of their first edge.
  std::array<uint32_t, kRunLengths.size()> free_runs_ = {kNoRun, kNoRun, kNoRun, kNoRun, kNoRun,
                                                         kNoRun, kNoRun, kNoRun, kNoRun};
  std::vector<std::unique_ptr<LongList, Deleter>> long_lists_;
  std::vector<uint32_t> free_long_lists_;
};

}  // namespace foretoken::proposer
