// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix_memory.h"

#include <algorithm>

namespace foretoken::proposer {

std::optional<NodeIdx> SuffixMemory::Reader::RootOf(const SuffixOwner& owner) const {
  const auto root = memory_.roots_.find(owner);
  if (root == memory_.roots_.end()) return std::nullopt;
  return root->second;
}

template <typename Step>
void SuffixMemory::InTurns(Step step) {
  for (bool done = false; !done;) {
    absl::MutexLock lock(&mutex_);
    ++version_;
    for (int32_t i = 0; i < kStepsPerTurn && !done; ++i) done = step();
  }
}

void SuffixMemory::Remember(const SuffixOwner& owner, std::span<const int32_t> tokens) {
  if (tokens.size() < kMinTokens) return;
  tokens = tokens.last(std::min<size_t>(tokens.size(), max_tokens_ / 2));
  const auto has_room = [&] {
    absl::ReaderMutexLock lock(&mutex_);
    const bool has_owner = roots_.size() < std::max(max_tokens_ / kTokensPerOwner, 1u) || roots_.contains(owner);
    return has_owner && tree_.free_places() > tokens.size();
  };
  while (!has_room()) ForgetOldest();
  const NodeIdx root = AddOwner(owner);
  size_t num_pushed = 0;
  bool is_appended = true;
  InTurns([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!is_appended) {
      is_appended = tree_.AppendStep();
    } else if (num_pushed < tokens.size()) {
      tree_.Push(root, tokens[num_pushed++]);
      is_appended = tree_.AppendStep();
    } else {
      return tree_.EndStep();
    }
    return false;
  });
}

NodeIdx SuffixMemory::AddOwner(const SuffixOwner& owner) {
  absl::MutexLock lock(&mutex_);
  const auto [root, is_new] = roots_.try_emplace(owner, kNoNode);
  if (is_new) {
    root->second = tree_.AddRoot();
    owners_.emplace(root->second, owner);
    ++version_;
  }
  return root->second;
}

void SuffixMemory::ForgetOldest() {
  InTurns([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const NodeIdx root = tree_.RootOf(0);
    const size_t num_tokens = tree_.num_tokens();
    if (!tree_.ForgetStep()) return false;
    num_forgotten_tokens_ += num_tokens - tree_.num_tokens();
    if (tree_.AtRoot(root).count == 0) {
      tree_.RemoveRoot(root);
      const auto owner = owners_.find(root);
      roots_.erase(owner->second);
      owners_.erase(owner);
    }
    return true;
  });
}

std::vector<SuffixText> SuffixMemory::Texts() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<SuffixText> texts;
  texts.reserve(tree_.num_texts());
  for (size_t i = 0; i < tree_.num_texts(); ++i) {
    texts.push_back({.owner = owners_.find(tree_.RootOf(i))->second, .tokens = tree_.CopyText(i)});
  }
  return texts;
}

size_t SuffixMemory::num_texts() const {
  absl::ReaderMutexLock lock(&mutex_);
  return tree_.num_texts();
}

size_t SuffixMemory::num_bytes() const {
  absl::ReaderMutexLock lock(&mutex_);
  return tree_.num_bytes();
}

SuffixMemory::Stats SuffixMemory::GetStats() const {
  absl::ReaderMutexLock lock(&mutex_);
  return {.num_texts = tree_.num_texts(),
          .num_tokens = tree_.num_tokens(),
          .num_bytes = tree_.num_bytes(),
          .num_owners = roots_.size(),
          .num_forgotten_tokens = num_forgotten_tokens_};
}

}  // namespace foretoken::proposer
