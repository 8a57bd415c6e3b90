// SPDX-License-Identifier: Apache-2.0
#include "common/model/block_pool.h"

#include <algorithm>

#include "kernels/check.h"

namespace foretoken::model {

using kernels::kKvBlockSize;

BlockPool::BlockPool(int32_t num_blocks) : blocks_(num_blocks) {
  for (int32_t block = num_blocks; block-- > 0;) free_.push_back(block);
}

std::optional<int32_t> BlockPool::Allocate(Evict evict) {
  if (evict == Evict::kYes) EvictUntilFree(1);
  if (free_.empty()) return std::nullopt;
  const int32_t block = free_.back();
  free_.pop_back();
  blocks_[block].num_references = 1;
  return block;
}

void BlockPool::EvictUntilFree(int32_t num_wanted) {
  while (num_free() < num_wanted && !lru_.empty()) {
    const int32_t block = lru_.front();
    lru_.pop_front();
    trie_.erase(*blocks_[block].key);
    blocks_[block].key.reset();
    free_.push_back(block);
  }
}

void BlockPool::Release(int32_t block) {
  Block& entry = blocks_[block];
  FT_CHECK(entry.num_references > 0);
  if (--entry.num_references > 0) return;
  if (entry.key.has_value()) {
    entry.lru_place = lru_.insert(lru_.end(), block);
  } else {
    free_.push_back(block);
  }
}

BlockPool::Key BlockPool::MakeKey(absl::string_view tenant, PrefixId parent, BlockTokens tokens) {
  Key key{.parent = parent, .tokens = {}, .tenant = {}};
  std::copy(tokens.begin(), tokens.end(), key.tokens.begin());
  if (parent == kEmptyPrefix) key.tenant = std::string(tenant);
  return key;
}

BlockPool::Prefix BlockPool::Find(absl::string_view tenant, std::span<const int32_t> tokens) {
  Prefix prefix;
  for (; tokens.size() >= kKvBlockSize; tokens = tokens.subspan(kKvBlockSize)) {
    const auto node = trie_.find(MakeKey(tenant, prefix.last, tokens.first<kKvBlockSize>()));
    if (node == trie_.end()) break;
    Block& block = blocks_[node->second.block];
    if (block.num_references++ == 0) lru_.erase(block.lru_place);
    prefix.blocks.push_back(node->second.block);
    prefix.last = node->second.id;
  }
  return prefix;
}

PrefixId BlockPool::Insert(absl::string_view tenant, PrefixId parent, BlockTokens tokens, int32_t block) {
  FT_CHECK(blocks_[block].num_references > 0);
  const auto [node, is_new] = trie_.try_emplace(MakeKey(tenant, parent, tokens), Node{next_id_, block});
  if (is_new) {
    FT_CHECK(!blocks_[block].key.has_value());
    blocks_[block].key = node->first;
    ++next_id_;
  }
  return node->second.id;
}

void BlockPool::CheckIntegrity() const {
  std::vector<int32_t> num_places(blocks_.size(), 0);
  for (const int32_t block : free_) {
    FT_CHECK(!blocks_[block].key.has_value());
    ++num_places[block];
  }
  for (const int32_t block : lru_) {
    FT_CHECK(blocks_[block].key.has_value());
    ++num_places[block];
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    FT_CHECK(blocks_[i].num_references >= 0);
    FT_CHECK(num_places[i] == (blocks_[i].num_references == 0 ? 1 : 0));
    if (blocks_[i].key.has_value()) {
      const auto node = trie_.find(*blocks_[i].key);
      FT_CHECK(node != trie_.end() && node->second.block == static_cast<int32_t>(i));
    }
  }
  for (const auto& [key, node] : trie_) FT_CHECK(blocks_[node.block].key == key);
}

}  // namespace foretoken::model
