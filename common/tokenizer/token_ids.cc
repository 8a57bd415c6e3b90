// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/token_ids.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::tokenizer {
absl::StatusOr<TokenIds> TokenIdsFromList(const JsonValue& vocab) {
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> entries, vocab.Elements());
  TokenIds ids;
  ids.reserve(entries.size());
  for (size_t id = 0; id < entries.size(); ++id) {
    FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> parts, entries[id].Elements());
    if (parts.size() != 2) return entries[id].Expected("[TOKEN, SCORE]");
    FT_ASSIGN_OR_RETURN(std::string token, parts[0].String());
    const auto [known, is_new] = ids.try_emplace(std::move(token), static_cast<int32_t>(id));
    if (!is_new) return parts[0].Expected(absl::StrCat("a token of its own, not that of id ", known->second));
  }
  return ids;
}

size_t MaxId(size_t num_tokens) { return 2 * num_tokens + (1 << 16); }

absl::StatusOr<TokenIds> TokenIdsFromObject(const JsonValue& vocab) {
  FT_ASSIGN_OR_RETURN(const auto members, vocab.Members());
  const size_t max_id = MaxId(members.size());
  TokenIds ids;
  absl::flat_hash_map<int32_t, absl::string_view> tokens;
  ids.reserve(members.size());
  tokens.reserve(members.size());
  for (const auto& [token, id_json] : members) {
    FT_ASSIGN_OR_RETURN(const int32_t id, id_json.TokenId());
    if (static_cast<size_t>(id) > max_id) {
      return id_json.Expected(absl::StrCat("an id up to ", max_id, " in a vocabulary of ", members.size()));
    }
    const auto [other, is_new] = tokens.try_emplace(id, token);
    if (!is_new) return id_json.Error(absl::StrCat("id ", id, " is already that of \"", other->second, "\""));
    ids.emplace(token, id);
  }
  return ids;
}

}  // namespace foretoken::tokenizer
