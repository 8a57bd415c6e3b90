// SPDX-License-Identifier: Apache-2.0
// From ids back to text, one id at a time: the "decoder" of tokenizer.json.
//
// Supported: ByteLevel; a Sequence of Replace (of a string), ByteFallback, Fuse, Strip (of leading characters, after
// Fuse) in this order, as SentencePiece-style files have it; Metaspace. Others are refused by name.
//
// Every token contributes a piece that does not depend on its neighbours, but for two things: bytes that are only
// together a character, and the start of a text, where the space that the encoder put there is taken away again. So
// decoding is a machine with a few bytes of state, and whole and incremental decoding are the same code.
//
// Bytes that are no UTF-8 become U+FFFD. For ByteLevel one for each broken sequence, as Hugging Face has it. For byte
// tokens one for each byte that belongs to no character; Hugging Face replaces the whole run of byte tokens instead,
// which would hold back a line feed (a byte token) until the next other token, so here whole characters pass.
// Errors: FromJson INVALID_ARGUMENT naming the step.
// Threads: Decoder immutable; a DecodeState belongs to one thread.
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

// What has been decoded so far, as far as it matters for what comes.
struct DecodeState {
  Utf8Assembler assembler;
  bool no_token_yet;
  int32_t num_strippable;  // characters at the start that may still be stripped
};

class Decoder {
 public:
  static absl::StatusOr<Decoder> FromJson(const JsonValue& json);

  // What the token stands for, not at a text's start.
  std::string BytesOf(absl::string_view spelling) const;

  // `continues_text`: something was decoded before, so nothing is stripped.
  DecodeState Start(bool continues_text) const;
  // Adds the text that the token, whose bytes are BytesOf its spelling, makes certain.
  void Append(const Token& token, DecodeState& state, std::string& out) const;
  // Adds what is left.
  void Flush(DecodeState& state, std::string& out) const;

 private:
  enum class Kind { kByteLevel, kSteps, kMetaspace };

  absl::Status AddStep(const JsonValue& step);
  void Strip(DecodeState& state, std::string& out, size_t from) const;

  Kind kind_ = Kind::kSteps;
  // kSteps
  std::vector<ReplaceAll> replaces_;
  bool byte_fallback_ = false;
  bool fuse_ = false;
  std::string stripped_;  // one character
  int32_t num_stripped_ = 0;
  // kMetaspace
  std::string metaspace_;  // one character, for a space
  bool drop_first_space_ = false;
};

}  // namespace foretoken::tokenizer
