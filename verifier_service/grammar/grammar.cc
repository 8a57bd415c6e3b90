// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/grammar.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "verifier_service/grammar/grammar_matcher.h"
#include "verifier_service/grammar/grammar_parts.h"
#include "verifier_service/grammar/regex_check.h"
#include "verifier_service/grammar/schema_check.h"
#include "verifier_service/grammar/schema_rewrite.h"
#include "verifier_service/grammar/special_tokens.h"

namespace foretoken::verifier {
namespace {

// The text of XGrammar's error without what is about XGrammar's own source: the time, the source line, the check.
absl::string_view ReasonOf(absl::string_view what) {
  const auto cut_behind = [&what](absl::string_view from, absl::string_view to) {
    const size_t begin = what.find(from);
    const size_t end = begin == what.npos ? begin : what.find(to, begin);
    if (end != what.npos) what = what.substr(end + to.size());
  };
  cut_behind(".cc:", ": ");
  cut_behind("Check failed: (", ") is false: ");
  return absl::StripAsciiWhitespace(what);
}

std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const bool is_plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == ' ' || c == '_';
    if (is_plain || (c & 0x80) != 0) {
      quoted.push_back(c);
    } else {
      absl::StrAppendFormat(&quoted, "\\u%04X", static_cast<unsigned char>(c));
    }
  }
  quoted.push_back('"');
  return quoted;
}

xgrammar::CompiledGrammar CompileWith(const GrammarSource& source, const GrammarVocabulary& vocabulary) {
  // One thread: XGrammar cannot report an error from its own threads.
  xgrammar::GrammarCompiler compiler(vocabulary.parts().info, /*max_threads=*/1, /*cache_enabled=*/false);
  switch (source.kind) {
    case GrammarKind::kJsonSchema:
      return compiler.CompileJSONSchema(RewriteSchema(source.text), /*any_whitespace=*/false);
    case GrammarKind::kRegex:
      return compiler.CompileRegex(source.text);
    case GrammarKind::kEbnf:
      return compiler.CompileGrammar(source.text);
    case GrammarKind::kStructuralTag:
      return compiler.CompileStructuralTag(
          MarkSpecialTokens(RewriteTagSchemas(source.text), vocabulary.parts().special_spellings));
  }
  throw std::invalid_argument("unknown kind of grammar");
}

// XGrammar's grammars may limit the tokens of a rule or set its temperature, as "rule[max_tokens=9] ::= ...". Such a
// limit depends on when masks are asked for, so it would not hold equally with speculation on and off. A limit of the
// characters does not, and XGrammar makes one of a schema's maxLength.
bool HasRuleAttributes(const xgrammar::CompiledGrammar& compiled, GrammarKind kind) {
  const std::string text = compiled.GetGrammar().ToString();
  for (const absl::string_view rule : absl::StrSplit(text, '\n')) {
    const size_t name_end = rule.find("::=");  // a rule of several lines has it in the first
    if (name_end == rule.npos) continue;
    const absl::string_view attributes = rule.substr(0, name_end).substr(std::min(rule.find('['), name_end));
    const bool limits_characters = absl::StartsWith(attributes, "[max_chars=") && !absl::StrContains(attributes, ',');
    if (absl::StartsWith(attributes, "[") && (kind == GrammarKind::kEbnf || !limits_characters)) return true;
  }
  return false;
}

// Whether a first token is possible.
bool HasText(const std::shared_ptr<const Grammar>& grammar, const GrammarVocabulary& vocabulary) {
  std::vector<uint32_t> mask((static_cast<size_t>(vocabulary.parts().info.GetVocabSize()) + 31) / 32);
  GrammarMatcher matcher(grammar);
  matcher.FillMask(mask);
  return matcher.has_given_up() || std::ranges::any_of(mask, [](uint32_t word) { return word != 0; });
}

// The text as JSON; null if its kind has none.
absl::StatusOr<nlohmann::json> ParseForm(const GrammarSource& source) {
  if (source.kind != GrammarKind::kJsonSchema && source.kind != GrammarKind::kStructuralTag) return nullptr;
  return base::ParseJson(source.text, "schema");
}

// Refuses what XGrammar would pass over.
absl::Status CheckSchemas(const nlohmann::json& form, GrammarKind kind) {
  return kind == GrammarKind::kStructuralTag ? CheckTag(form) : CheckSchema(form);
}

}  // namespace

GrammarSource ChoiceOf(std::span<const std::string> texts) {
  GrammarSource source = {.kind = GrammarKind::kEbnf, .text = "root ::= "};
  for (size_t i = 0; i < texts.size(); ++i) absl::StrAppend(&source.text, i > 0 ? " | " : "", Quote(texts[i]));
  return source;
}

GrammarTokens TokensOf(const tokenizer::Vocabulary& vocabulary, int32_t num_tokens,
                       std::span<const int32_t> end_token_ids) {
  GrammarTokens tokens = {.bytes = std::vector<std::string>(num_tokens),
                          .end_token_ids = {end_token_ids.begin(), end_token_ids.end()}};
  for (int32_t id = 0; id < num_tokens; ++id) {
    const tokenizer::Token* const token = vocabulary.Find(id);
    if (token == nullptr || std::ranges::count(end_token_ids, id) > 0) continue;
    if (token->special) {
      tokens.bytes[id] = absl::StrCat(std::string(1, kSpecialMark), token->spelling);
    } else if (!absl::StrContains(token->bytes, kSpecialMark)) {
      tokens.bytes[id] = token->bytes;
    }
  }
  return tokens;
}

GrammarVocabulary::GrammarVocabulary(const GrammarTokens& tokens) {
  std::vector<std::string> special_spellings;
  for (const std::string& bytes : tokens.bytes) {
    if (bytes.size() > 1 && bytes.front() == kSpecialMark) special_spellings.push_back(bytes.substr(1));
  }
  parts_ = std::make_shared<Parts>(
      Parts{.info = xgrammar::TokenizerInfo(tokens.bytes, xgrammar::VocabType::RAW,
                                            static_cast<int>(tokens.bytes.size()), tokens.end_token_ids),
            .special_spellings = std::move(special_spellings)});
}

Grammar::Grammar(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Grammar::~Grammar() = default;

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Compile(const GrammarSource& source,
                                                                const GrammarVocabulary& vocabulary) {
  const absl::StatusOr<nlohmann::json> form = ParseForm(source);
  if (form.ok()) FT_RETURN_IF_ERROR(CheckSchemas(*form, source.kind));
  if (source.kind == GrammarKind::kRegex) {
    if (const std::string bad = BadRegex(source.text); !bad.empty()) return absl::InvalidArgumentError(bad);
  }
  try {
    xgrammar::CompiledGrammar compiled = CompileWith(source, vocabulary);
    FT_RETURN_IF_ERROR(form.status());  // only now, because XGrammar's own error names the place
    if (HasRuleAttributes(compiled, source.kind)) {
      return absl::InvalidArgumentError("expected rules without attributes in brackets, such as max_tokens");
    }
    auto grammar =
        std::make_shared<const Grammar>(std::make_unique<const Parts>(Parts{.compiled = std::move(compiled)}));
    if (!HasText(grammar, vocabulary))
      return absl::InvalidArgumentError("expected a form that some text has, got none");
    return grammar;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory is left");
  } catch (const std::exception& error) {
    const absl::string_view reason = ReasonOf(error.what());
    if (reason.empty()) FT_RETURN_IF_ERROR(form.status());
    return absl::InvalidArgumentError(reason);
  }
}

std::string Grammar::Serialize() const { return parts_->compiled.SerializeJSON(); }

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Parse(const std::string& serialized,
                                                              const GrammarVocabulary& vocabulary) {
  try {
    auto parsed = xgrammar::CompiledGrammar::DeserializeJSON(serialized, vocabulary.parts().info);
    if (auto* const compiled = std::get_if<xgrammar::CompiledGrammar>(&parsed)) {
      return std::make_shared<const Grammar>(std::make_unique<const Parts>(Parts{.compiled = *std::move(compiled)}));
    }
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("a compiled grammar does not parse: ", ReasonOf(error.what())));
  }
  return absl::InternalError("a compiled grammar does not parse");
}

size_t Grammar::num_bytes() const { return parts_->compiled.MemorySizeBytes(); }

}  // namespace foretoken::verifier
