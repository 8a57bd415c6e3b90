// SPDX-License-Identifier: Apache-2.0
// Turns text into token ids and back, exactly as Hugging Face's `tokenizers` does with the same files.
//
//   FT_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load("/models/llama"));
//   FT_RETURN_IF_ERROR(tokenizer.CheckFits(config.vocab_size));
//   FT_ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode("def main():"));
//   FT_ASSIGN_OR_RETURN(std::string text, tokenizer.Decode(ids, {.skip_special = true}));
//
// Supported: byte-level BPE (Llama 3, Qwen), SentencePiece-style BPE with byte fallback (Llama 2, Mistral) and Unigram.
// These headers list the supported parts: normalizer.h, pre_tokenizer.h, bpe.h, unigram.h, added_tokens.h,
// post_processor.h, decoder.h. A file with any other part is refused by name. `truncation` and `padding` do not concern
// serving and are not read.
// Units: ids are int32 from 0; lengths are bytes.
// Errors: Load returns NOT_FOUND without a tokenizer.json, and INVALID_ARGUMENT with the file, the field, the expected
// and the given value. Encode returns INVALID_ARGUMENT for a text that is not UTF-8 (naming the byte) or for a
// character without a token, and RESOURCE_EXHAUSTED if the file's pattern backtracks too long. Decode returns
// INVALID_ARGUMENT for an id without a token.
// Time: O(n log n) in the text's length, for any text.
// Threads: immutable after Load; an IncrementalDecoder belongs to one thread.
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
#include "common/tokenizer/text_range.h"
#include "common/tokenizer/vocabulary.h"

namespace foretoken::tokenizer {

struct EncodeOptions {
  // True: adds the tokens around the text that the file gives (mostly a beginning-of-text token). Unset: as the file
  // says.
  std::optional<bool> add_special_tokens = std::nullopt;
  // True: the spelling of a special token in the text becomes that token. False: it is encoded like other text, so that
  // a user cannot write tokens that only the server may write. (Hugging Face's option encode_special_tokens leaves the
  // spelling to the model, and a Unigram model finds the token again.) Added tokens that are not special are always
  // recognised.
  bool parse_special = false;
  // Parts of the text, in order and apart, in which the spelling of a special token becomes that token even if
  // parse_special is false. The whole spelling must lie in one part. Some files search for tokens in the normalised
  // text. There, a character that the normalizer made of the inside and the outside of a part belongs to no part.
  std::span<const TextRange> special_ranges = {};
};

struct DecodeOptions {
  bool skip_special = false;  // special tokens add no text
  // The ids continue a text that was decoded before, so a space at their start is a real one. SentencePiece-style files
  // add a space before every text when they encode, and remove it from the start of a text when they decode.
  bool continues_text = false;
};

class Tokenizer {
 public:
  // `directory` holds tokenizer.json and, optionally, tokenizer_config.json. The latter's add_bos_token and
  // add_eos_token count if the former has no template. Or it is a GGUF file.
  static absl::StatusOr<Tokenizer> Load(const std::string& directory);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, const EncodeOptions& options = {}) const;
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  const Vocabulary& vocabulary() const;
  // INVALID_ARGUMENT if an id is not below a model's vocab_size; it names the first such token. Added tokens may lie
  // beyond it, as in a fine-tune whose "<pad>" never got a row, unless the file puts them around every text.
  absl::Status CheckFits(size_t model_vocab_size) const;

 private:
  friend class IncrementalDecoder;
  struct Parts;  // the data that Load reads
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

// Decodes a generation token by token. The pieces that Append and the last Flush return, put together, are the text
// that Decode of all ids returns. Each piece has whole characters only: up to three bytes, which may begin a character,
// wait for the next token.
// Time: each call is linear in the token's bytes. The tokenizer must outlive it.
//
//   IncrementalDecoder decoder(tokenizer, {.skip_special = true, .continues_text = true});  // after the prompt
//   for (int32_t id : generated) Send(decoder.Append(id));
//   Send(decoder.Flush());
class IncrementalDecoder {
 public:
  IncrementalDecoder(const Tokenizer& tokenizer, const DecodeOptions& options);

  // An id without a token adds nothing.
  std::string Append(int32_t id);
  // Waiting bytes become U+FFFD. Afterwards the decoder continues as in the middle of a text.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  DecodeState state_;
};

}  // namespace foretoken::tokenizer
