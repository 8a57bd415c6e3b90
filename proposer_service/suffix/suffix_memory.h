// SPDX-License-Identifier: Apache-2.0
// The memory of finished outputs, over all sessions: one suffix tree with a root per owner. A search under one owner's
// key finds no other tenant's text, and its duration shows nothing of it. Ids of one vocabulary never match ids of
// another. The memory is bounded: the oldest outputs, of any owner, make room for new outputs and new owners. An owner
// without outputs costs nothing.
//
// Example:
//   SuffixMemory memory({.max_tokens = 1 << 24});
//   const SuffixOwner owner = {.vocabulary = fingerprint, .tenant = "tenant"};
//   memory.Remember(owner, output);
//   SuffixMemory::Reader reader(memory);
//   if (std::optional<NodeIdx> root = reader.RootOf(owner)) ... reader.tree().AtRoot(*root) ...
//
// Threads: many readers and one writer. The writer blocks readers for kStepsPerTurn steps of the tree at a time, some
// tens of microseconds. Cursors are valid while version() stays the same.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "proposer_service/suffix/suffix_tree.h"

namespace foretoken::proposer {

// The owner of a text.
struct SuffixOwner {
  std::string vocabulary;  // fingerprint in hex; empty: not told, which counts as a vocabulary of its own
  std::string tenant;

  friend bool operator==(const SuffixOwner&, const SuffixOwner&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const SuffixOwner& owner) {
    return H::combine(std::move(state), owner.vocabulary, owner.tenant);
  }
};

struct SuffixText {
  SuffixOwner owner;
  std::vector<int32_t> tokens;
};

class SuffixMemory {
 public:
  // The memory ignores shorter outputs, because they teach too little for the cost of an owner. If an output is longer
  // than half the memory, the memory keeps only its end, which is half the memory long.
  static constexpr size_t kMinTokens = 8;
  // The memory has at most one owner per this many tokens of its size. An owner's names take up to a kilobyte, so all
  // owners together take no more memory than the tokens.
  static constexpr uint32_t kTokensPerOwner = 64;

  explicit SuffixMemory(const SuffixTreeOptions& options) : max_tokens_(options.max_tokens), tree_(options) {}

  // Learns an output. One thread at a time.
  void Remember(const SuffixOwner& owner, std::span<const int32_t> tokens);
  // The outputs, oldest first. Not concurrently with Remember.
  std::vector<SuffixText> Texts() const;
  size_t num_texts() const;
  size_t num_bytes() const;

  struct Stats {
    size_t num_texts = 0;
    size_t num_tokens = 0;
    size_t num_bytes = 0;
    size_t num_owners = 0;
    uint64_t num_forgotten_tokens = 0;  // since the start
  };
  Stats GetStats() const;

  // Keeps the memory unchanged while it lives. Readers must be short, because they block the writer.
  class ABSL_SCOPED_LOCKABLE Reader {
   public:
    explicit Reader(const SuffixMemory& memory) ABSL_SHARED_LOCK_FUNCTION(memory.mutex_) : memory_(memory) {
      memory.mutex_.ReaderLock();
    }
    ~Reader() ABSL_UNLOCK_FUNCTION() { memory_.mutex_.ReaderUnlock(); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    const SuffixTree& tree() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return memory_.tree_; }
    uint64_t version() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return memory_.version_; }
    // Unset: the memory has no output of the owner.
    std::optional<NodeIdx> RootOf(const SuffixOwner& owner) const ABSL_NO_THREAD_SAFETY_ANALYSIS;

   private:
    const SuffixMemory& memory_;
  };

 private:
  static constexpr int32_t kStepsPerTurn = 8;

  // Repeats `step` until it returns true. Readers may read after every kStepsPerTurn steps.
  template <typename Step>
  void InTurns(Step step);
  NodeIdx AddOwner(const SuffixOwner& owner);
  void ForgetOldest();

  const uint32_t max_tokens_;
  mutable absl::Mutex mutex_;
  SuffixTree tree_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t num_forgotten_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<SuffixOwner, NodeIdx> roots_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NodeIdx, SuffixOwner> owners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::proposer
