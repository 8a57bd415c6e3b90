// SPDX-License-Identifier: Apache-2.0
// What finished outputs taught, over all sessions: one suffix tree with a root per tenant, so that one tenant's text is
// never found, and never shows in the time that finding takes, under another's key. Bounded: the oldest outputs,
// whoever's they are, make room for new ones. A tenant without outputs left costs nothing.
//
// Example:
//   SuffixMemory memory({.max_tokens = 1 << 24});
//   memory.Remember("tenant", output);
//   SuffixMemory::Reader reader(memory);
//   if (std::optional<NodeIdx> root = reader.RootOf("tenant")) ... reader.tree().AtRoot(*root) ...
//
// Threads: many readers and one writer. The writer holds readers up for kStepsPerTurn steps of the tree at a time, some
// tens of microseconds. Cursors are good as long as version() is the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "proposer_service/suffix_tree.h"

namespace foretoken::proposer {

struct SuffixText {
  std::string tenant;
  std::vector<int32_t> tokens;
};

class SuffixMemory {
 public:
  // Shorter outputs teach too little for what a tenant costs. Of outputs longer than half the memory the last half
  // memory is remembered.
  static constexpr size_t kMinTokens = 8;

  explicit SuffixMemory(const SuffixTreeOptions& options) : max_tokens_(options.max_tokens), tree_(options) {}

  // One at a time.
  void Remember(const std::string& tenant, std::span<const int32_t> tokens);
  // Oldest first. Not beside Remember.
  std::vector<SuffixText> Texts() const;
  size_t num_texts() const;
  size_t num_bytes() const;

  struct Stats {
    size_t num_texts = 0;
    size_t num_tokens = 0;
    size_t num_bytes = 0;
    size_t num_tenants = 0;
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
    // None: nothing is remembered of the tenant.
    std::optional<NodeIdx> RootOf(absl::string_view tenant) const ABSL_NO_THREAD_SAFETY_ANALYSIS;

   private:
    const SuffixMemory& memory_;
  };

 private:
  static constexpr int32_t kStepsPerTurn = 8;

  // Repeats a step until it returns true, with turns for readers.
  template <typename Step>
  void InTurns(Step step);
  NodeIdx AddTenant(const std::string& tenant);
  void ForgetOldest();

  const uint32_t max_tokens_;
  mutable absl::Mutex mutex_;
  SuffixTree tree_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t num_forgotten_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, NodeIdx> roots_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NodeIdx, std::string> tenants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::proposer
