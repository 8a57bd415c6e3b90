// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, exactly as Hugging Face's `tokenizers` does it for the same files.
//
//   FT_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load("/models/llama"));
//   FT_RETURN_IF_ERROR(tokenizer.CheckFits(config.vocab_size));
//   FT_ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode("def main():"));
//   FT_ASSIGN_OR_RETURN(std::string text, tokenizer.Decode(ids, {.skip_special = true}));
//
// Supported: byte-level BPE (Llama 3, Qwen), SentencePiece-style BPE with byte fallback (Llama 2, Mistral) and Unigram.
// What exactly, part by part: normalizer.h, pre_tokenizer.h, bpe.h, unigram.h, added_tokens.h, post_processor.h,
// decoder.h. A file that asks for anything else is refused by name; `truncation` and `padding` are not for serving and
// are not read. Units: ids are int32 from 0; lengths are bytes. Errors: Load NOT_FOUND without a tokenizer.json,
// INVALID_ARGUMENT naming file, field, expected and got. Encode INVALID_ARGUMENT for a text that is not UTF-8 (naming
// the byte) or a character that no token stands for, RESOURCE_EXHAUSTED where the file's pattern backtracks beyond all
// reason. Decode INVALID_ARGUMENT for an id that is no token. Time: O(n log n) in the text, whatever the text. Threads:
// immutable after Load; an IncrementalDecoder belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/decoder.h"
#include "common/tokenizer/vocabulary.h"

namespace foretoken::tokenizer {

struct EncodeOptions {
  // Whether to put the tokens around the text that the file says belong there (a beginning-of-text token, mostly).
  // Unset: as the file says.
  std::optional<bool> add_special_tokens = std::nullopt;
  // Whether the spelling of a special token in the text is that token. Where it is not it is encoded like other text,
  // so that a user cannot write what only the server may. Added tokens that are not special are always recognised.
  bool parse_special = false;
};

struct DecodeOptions {
  bool skip_special = false;  // special tokens contribute nothing
  // The ids continue a text that was decoded before: the space at their start is a real one. SentencePiece-style files
  // put a space before every text when encoding, and take it away when decoding what stands at a text's start.
  bool continues_text = false;
};

class Tokenizer {
 public:
  // `directory` holds tokenizer.json and, optionally, tokenizer_config.json. The latter's add_bos_token and
  // add_eos_token count where the former has no template that says what to add.
  static absl::StatusOr<Tokenizer> Load(const std::string& directory);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, const EncodeOptions& options = {}) const;
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  const Vocabulary& vocabulary() const;
  // INVALID_ARGUMENT, naming the first such token, when an id is not below a model's vocab_size. Added tokens may lie
  // beyond it, as in a fine-tune whose "<pad>" never got a row, unless the file puts them around every text.
  absl::Status CheckFits(size_t model_vocab_size) const;

 private:
  friend class IncrementalDecoder;
  struct Parts;  // what Load reads
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

// Decodes a generation as it happens. What Append and the last Flush return is, put together, what Decode of all ids
// returns, and each piece is whole characters: up to three bytes that may be the start of one wait for the next token.
// Time: each call is linear in the token's bytes. The tokenizer must outlive it.
//
//   IncrementalDecoder decoder(tokenizer, {.skip_special = true, .continues_text = true});  // after the prompt
//   for (int32_t id : generated) Send(decoder.Append(id));
//   Send(decoder.Flush());
class IncrementalDecoder {
 public:
  IncrementalDecoder(const Tokenizer& tokenizer, const DecodeOptions& options);

  // An id that is no token contributes nothing.
  std::string Append(int32_t id);
  // What waits becomes U+FFFD. Afterwards the decoder goes on as in the middle of a text.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  DecodeState state_;
};

}  // namespace foretoken::tokenizer
