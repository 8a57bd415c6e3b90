// SPDX-License-Identifier: Apache-2.0
// A form that outputs must have, compiled for one vocabulary. XGrammar does the work; no other room sees it.
//
//   const GrammarVocabulary vocabulary(TokensOf(tokenizer.vocabulary(), num_tokens, end_token_ids));
//   FT_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar,
//                       Grammar::Compile({.kind = GrammarKind::kRegex, .text = "[0-9]+"}, vocabulary));
//   GrammarMatcher matcher(grammar);  // grammar_matcher.h
//
// JSON under a schema has one spelling of white space: one line, ", " between elements and ": " behind names. So the
// model draws no endless white space, and long parts of an output are certain.
//
// Errors: INVALID_ARGUMENT with XGrammar's reason, which has the line and the column for grammars. RESOURCE_EXHAUSTED
// without memory.
// Time: Compile may take any time and any memory for a hostile text. GrammarCompiler (grammar_compiler.h) bounds both.
// Threads: immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/vocabulary.h"

namespace foretoken::verifier {

// The reason of an error for a form that takes too much time or memory.
inline constexpr absl::string_view kFormatTooCostly = "FORMAT_TOO_COSTLY";

enum class GrammarKind : uint8_t {
  kJsonSchema,
  kRegex,
  kEbnf,           // GBNF; its first rule is named root
  kStructuralTag,  // JSON, as XGrammar defines it
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string text;
};

// The grammar of one of these texts, as kEbnf.
GrammarSource ChoiceOf(std::span<const std::string> texts);

// What a grammar must know of the tokens. Plain data, so that it can be sent to another process.
struct GrammarTokens {
  std::vector<std::string> bytes;      // [V] of each token, with a mark if it is special; empty: never part of a form
  std::vector<int32_t> end_token_ids;  // may come where the form may end
};
// The tokens with ids below `num_tokens`. A special token is no text (special_tokens.h). Ids without a token are never
// part of a form.
GrammarTokens TokensOf(const tokenizer::Vocabulary& vocabulary, int32_t num_tokens,
                       std::span<const int32_t> end_token_ids);

class GrammarVocabulary {
 public:
  explicit GrammarVocabulary(const GrammarTokens& tokens);

  struct Parts;  // XGrammar's
  const Parts& parts() const { return *parts_; }

 private:
  std::shared_ptr<const Parts> parts_;
};

class Grammar {
 public:
  static absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const GrammarSource& source,
                                                                const GrammarVocabulary& vocabulary);
  // Serialize writes a grammar so that Parse makes an equal one of it, for the same vocabulary. Parse trusts the bytes:
  // they come from our own program.
  std::string Serialize() const;
  static absl::StatusOr<std::shared_ptr<const Grammar>> Parse(const std::string& serialized,
                                                              const GrammarVocabulary& vocabulary);

  size_t num_bytes() const;  // of memory, approximately

  struct Parts;  // XGrammar's
  explicit Grammar(std::unique_ptr<const Parts> parts);
  ~Grammar();
  const Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<const Parts> parts_;
};

}  // namespace foretoken::verifier
