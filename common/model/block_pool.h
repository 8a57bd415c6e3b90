// SPDX-License-Identifier: Apache-2.0
// The blocks of a paged K/V cache: counts the references to each block, and finds blocks whose prefix another sequence
// can share.
//
// A block is free, held (by one or more references), or *cached*. A cached block has no holder, but it is full and can
// be found by its content until its memory is needed. Prefixes form a trie: a node is one full block's tokens below its
// parent node. Lookups compare the tokens themselves, so a hit is never a hash collision. Tenants have separate tries.
//
// Eviction takes the cached block that was released longest ago. A sequence releases its blocks from the last to the
// first, so that a prefix outlives its continuations. If a parent is evicted, its children cannot be found any more and
// are evicted later.
//
// Threads: one. Source of the idea: paged K/V is vLLM's (2309.06180).
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "kernels/ops.h"

namespace foretoken::model {

using BlockTokens = std::span<const int32_t, kernels::kKvBlockSize>;

// A trie node. Ids are never reused, so a stale id finds nothing.
using PrefixId = uint64_t;
inline constexpr PrefixId kEmptyPrefix = 0;

enum class Evict { kNo, kYes };

class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_cached() const { return static_cast<int32_t>(lru_.size()); }

  // Returns a block with one reference; unset: no block is free (and, with kYes, none is cached).
  std::optional<int32_t> Allocate(Evict evict);
  // Drops one reference.
  void Release(int32_t block);
  // Evicts cached blocks until this many are free, or none is cached.
  void EvictUntilFree(int32_t num_wanted);

  struct Prefix {
    std::vector<int32_t> blocks;  // the caller owns one reference to each
    PrefixId last = kEmptyPrefix;
  };
  // Finds the longest cached run of full blocks that `tokens` starts with.
  Prefix Find(absl::string_view tenant, std::span<const int32_t> tokens);
  // Makes a held, full block findable below `parent`. If the trie has an equal block already, it keeps that block, and
  // this block stays as it was. Returns the prefix's id, the parent of the next block.
  PrefixId Insert(absl::string_view tenant, PrefixId parent, BlockTokens tokens, int32_t block);

  // Ends the process unless every block is in exactly one of the three states and the trie points to its blocks.
  void CheckIntegrity() const;

 private:
  struct Key {
    PrefixId parent;
    std::array<int32_t, kernels::kKvBlockSize> tokens;
    std::string tenant;  // only below kEmptyPrefix; deeper nodes inherit it from their parent

    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.parent, key.tokens, key.tenant);
    }
  };
  struct Node {
    PrefixId id;
    int32_t block;
  };
  struct Block {
    int32_t num_references = 0;
    std::optional<Key> key;                  // set if the trie points to the block
    std::list<int32_t>::iterator lru_place;  // valid while cached
  };

  static Key MakeKey(absl::string_view tenant, PrefixId parent, BlockTokens tokens);

  std::vector<Block> blocks_;
  std::vector<int32_t> free_;
  std::list<int32_t> lru_;  // cached blocks, the next to evict first
  absl::flat_hash_map<Key, Node> trie_;
  PrefixId next_id_ = kEmptyPrefix + 1;
};

}  // namespace foretoken::model
