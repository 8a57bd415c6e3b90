// SPDX-License-Identifier: Apache-2.0
// What finished outputs taught, over all sessions: one suffix tree with a root per owner, so that one tenant's text is
// never found, and never shows in the time that finding takes, under another's key, and so that ids of one vocabulary
// are never taken for ids of another. Bounded: the oldest outputs, of whatever owner, make room for new ones, and for
// new owners. An owner without outputs left costs nothing.
//
// Example:
//   SuffixMemory memory({.max_tokens = 1 << 24});
//   const SuffixOwner owner = {.vocabulary = fingerprint, .tenant = "tenant"};
//   memory.Remember(owner, output);
//   SuffixMemory::Reader reader(memory);
//   if (std::optional<NodeIdx> root = reader.RootOf(owner)) ... reader.tree().AtRoot(*root) ...
//
// Threads: many readers and one writer. The writer holds readers up for kStepsPerTurn steps of the tree at a time, some
// tens of microseconds. Cursors are good as long as version() is the same.
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

// Whose text something is.
struct SuffixOwner {
  std::string vocabulary;  // fingerprint in hex; empty: not told, which is a vocabulary of its own
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
  // Shorter outputs teach too little for what an owner costs. Of outputs longer than half the memory the last half
  // memory is remembered.
  static constexpr size_t kMinTokens = 8;
  // There is at most one owner per so many tokens of the memory's size. An owner's names take up to a kilobyte, so that
  // all of them together take no more than the tokens do.
  static constexpr uint32_t kTokensPerOwner = 64;

  explicit SuffixMemory(const SuffixTreeOptions& options) : max_tokens_(options.max_tokens), tree_(options) {}

  // One at a time.
  void Remember(const SuffixOwner& owner, std::span<const int32_t> tokens);
  // Oldest first. Not beside Remember.
  std::vector<SuffixText> Texts() const;
  size_t num_texts() const;
  size_t num_bytes() const;

  struct Stats {
    size_t num_texts = 0;
    size_t num_tokens = 0;
    size_t num_bytes = 0;
    size_t num_owners = 0;
    uint64_t num_forgotten_tokens = 0;  // ever
  };
  Stats GetStats() const;

  // Keeps the memory as it is while it lives. Short, please.
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
    // None: nothing is remembered of the owner.
    std::optional<NodeIdx> RootOf(const SuffixOwner& owner) const ABSL_NO_THREAD_SAFETY_ANALYSIS;

   private:
    const SuffixMemory& memory_;
  };

 private:
  static constexpr int32_t kStepsPerTurn = 8;

  // Repeats a step until it returns true, with turns for readers.
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
