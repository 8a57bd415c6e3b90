// SPDX-License-Identifier: Apache-2.0
// Turns words into ids: the "model" of tokenizer.json, which is BPE or Unigram.
//
// Errors: CheckSupported returns INVALID_ARGUMENT for another model, by its name; FromJson and Encode as bpe.h and
// unigram.h.
// Threads: immutable.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/json_value.h"
#include "common/tokenizer/token_ids.h"
#include "common/tokenizer/unigram.h"

namespace foretoken::tokenizer {

class TokenModel {
 public:
  // OK if FromJson can read the model. Call it before anything else reads the file: other models have other
  // normalizers, vocabularies and decoders, and an error about one of these would hide the cause.
  static absl::Status CheckSupported(const JsonValue& model);
  static absl::StatusOr<TokenIds> ReadIds(const JsonValue& model);
  // `ids` is the result of ReadIds.
  static absl::StatusOr<TokenModel> FromJson(const JsonValue& model, const TokenIds& ids, const ReservedIds& reserved,
                                             bool is_byte_level);

  // Adds the word's tokens. A byte-level word may be any bytes; another word must be well-formed UTF-8.
  absl::Status Encode(absl::string_view word, std::vector<int32_t>& out) const;

 private:
  explicit TokenModel(std::variant<Bpe, Unigram> kind) : kind_(std::move(kind)) {}

  std::variant<Bpe, Unigram> kind_;
};

}  // namespace foretoken::tokenizer
