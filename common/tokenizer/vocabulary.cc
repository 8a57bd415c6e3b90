// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/vocabulary.h"

#include <algorithm>

namespace foretoken::tokenizer {
namespace {

void Describe(int32_t id, const Token& token, base::Sha256& sha) {
  sha.UpdateInteger(static_cast<uint64_t>(id));
  sha.UpdateInteger(token.bytes.size());
  sha.Update(token.bytes);
  sha.UpdateInteger(token.special ? 1 : 0);
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::optional<Token>> tokens) : tokens_(std::move(tokens)) {
  ids_.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id]) ids_.emplace(tokens_[id]->spelling, static_cast<int32_t>(id));
  }
}

const Token* Vocabulary::Find(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens_.size() || !tokens_[id]) return nullptr;
  return &*tokens_[id];
}

std::optional<int32_t> Vocabulary::FindId(absl::string_view spelling) const {
  const auto it = ids_.find(spelling);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

bool Vocabulary::IsSpecial(int32_t id) const {
  const Token* token = Find(id);
  return token != nullptr && token->special;
}

base::Sha256Digest VocabularyFingerprint(const Vocabulary& vocabulary) {
  base::Sha256 sha;
  for (size_t id = 0; id < vocabulary.num_ids(); ++id) {
    if (const Token* token = vocabulary.Find(static_cast<int32_t>(id))) Describe(static_cast<int32_t>(id), *token, sha);
  }
  return sha.Finish();
}

std::vector<uint64_t> TokenDigests(const Vocabulary& vocabulary) {
  std::vector<uint64_t> digests(vocabulary.num_ids());
  for (size_t id = 0; id < digests.size(); ++id) {
    base::Sha256 sha;
    if (const Token* token = vocabulary.Find(static_cast<int32_t>(id))) Describe(static_cast<int32_t>(id), *token, sha);
    const base::Sha256Digest digest = sha.Finish();
    for (int i = 7; i >= 0; --i) digests[id] = digests[id] << 8 | digest[i];
  }
  return digests;
}

std::optional<int32_t> FirstDifferingId(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (in_a == a.end() && in_b == b.end()) return std::nullopt;
  return static_cast<int32_t>(in_a - a.begin());
}

}  // namespace foretoken::tokenizer
