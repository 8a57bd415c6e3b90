// SPDX-License-Identifier: Apache-2.0
// The tokens of a model in tokenizer.json with their ids: its "vocab". It is an object {TOKEN: ID} or, in a Unigram
// model, a list of [TOKEN, SCORE], where the index is the id.
//
// Errors: INVALID_ARGUMENT names the field: ids that are negative, used twice or far beyond the number of tokens, and
// tokens that are listed twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/json_value.h"

namespace foretoken::tokenizer {

using TokenIds = absl::flat_hash_map<std::string, int32_t>;
// Special tokens that a model may list beside its own: it makes them of no text, so that a user cannot write them.
using ReservedIds = absl::flat_hash_set<int32_t>;

// The largest id that a vocabulary of this size may have. Ids index arrays, so a file of ten tokens must not give one
// of them the id 2,000,000,000. Some unused ids are usual.
size_t MaxId(size_t num_tokens);

absl::StatusOr<TokenIds> TokenIdsFromObject(const JsonValue& vocab);
absl::StatusOr<TokenIds> TokenIdsFromList(const JsonValue& vocab);

}  // namespace foretoken::tokenizer
