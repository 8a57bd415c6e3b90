// SPDX-License-Identifier: Apache-2.0
// Turns ids back into text, one id at a time: the "decoder" of tokenizer.json.
//
// Supported: ByteLevel; a Sequence of Replace (of a string), ByteFallback, Fuse, Strip (of leading characters, after
// Fuse) in this order, as in SentencePiece-style files; Metaspace. Other decoders are refused by name.
//
// Every token adds a piece that does not depend on its neighbours, with two exceptions. Several bytes may together be
// one character. And at the start of a text, the decoder removes the space that the encoder added. So the decoder needs
// only a few bytes of state, and whole and incremental decoding are the same code.
//
// Bytes that are not UTF-8 become U+FFFD. For ByteLevel there is one per broken sequence, as in Hugging Face. For byte
// tokens there is one per byte that belongs to no character. Hugging Face replaces the whole run of byte tokens
// instead. With that rule a line feed (a byte token) would wait for the next token that is no byte token, so this
// decoder keeps the whole characters of a run.
// Errors: FromJson returns INVALID_ARGUMENT, which names the step.
// Threads: a Decoder is immutable; a DecodeState belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_value.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/unicode/utf8.h"
#include "common/tokenizer/vocabulary.h"

namespace foretoken::tokenizer {

// The state of a decoding, as far as later tokens depend on it.
struct DecodeState {
  Utf8Assembler assembler;
  bool no_token_yet;
  int32_t num_strippable;  // characters at the start that may still be stripped
};

class Decoder {
 public:
  static absl::StatusOr<Decoder> FromJson(const JsonValue& json);

  // The token's bytes in a text, not at the text's start.
  std::string BytesOf(absl::string_view spelling) const;

  // `continues_text`: earlier text was decoded, so nothing is stripped.
  DecodeState Start(bool continues_text) const;
  // Adds the text that is certain after this token. Its bytes are BytesOf its spelling.
  void Append(const Token& token, DecodeState& state, std::string& out) const;
  // Adds the waiting bytes.
  void Flush(DecodeState& state, std::string& out) const;

 private:
  enum class Kind { kByteLevel, kSteps, kMetaspace };

  absl::Status AddStep(const JsonValue& step, StepBounds& bounds);
  void Strip(DecodeState& state, std::string& out, size_t from) const;

  Kind kind_ = Kind::kSteps;
  // For kSteps.
  std::vector<ReplaceAll> replaces_;
  bool byte_fallback_ = false;
  bool fuse_ = false;
  std::string stripped_;  // one character
  int32_t num_stripped_ = 0;
  // For kMetaspace.
  std::string metaspace_;  // one character, which means a space
  bool drop_first_space_ = false;
};

}  // namespace foretoken::tokenizer
