// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/tokenizer/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/pattern_parser.h"
#include "common/tokenizer/unicode/utf8.h"
#include "kernels/check.h"

namespace foretoken::tokenizer {
namespace {

// A linear match backtracks over a run of characters once per alternative. These numbers leave room for dozens of
// alternatives.
constexpr size_t kStepsPerByte = 64;
constexpr size_t kMinSteps = 1'000'000;
constexpr size_t kMinJitStackBytes = 64 << 10;
constexpr size_t kMaxJitStackBytes = 8 << 20;

absl::Status Refused(absl::string_view expression, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("pattern ", expression, ": ", why));
}

std::string Pcre2Message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// The expression over the classes' symbols. No byte in it is written literally, so no symbol can be taken for an
// operator.
std::string OverSymbols(const ParsedPattern& parsed, const CharClasses& classes) {
  std::string out;
  for (const auto& piece : parsed.pieces) {
    if (const auto* operators = std::get_if<std::string>(&piece)) {
      out += *operators;
      continue;
    }
    const std::string& symbols = classes.SymbolsOf(std::get<size_t>(piece));
    if (symbols.empty()) {
      out += "(?!)";  // a set without members
      continue;
    }
    out += '[';
    for (const char symbol : symbols) absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(symbol));
    out += ']';
  }
  return out;
}

// The resources that one thread needs for one text.
class Matcher {
 public:
  Matcher(const pcre2_code* code, absl::string_view symbols, size_t num_bytes)
      : code_(code),
        symbols_(symbols),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    FT_CHECK(data_ != nullptr && context_ != nullptr);
    const size_t steps = std::max(kMinSteps, num_bytes * kStepsPerByte);
    pcre2_set_match_limit(context_, std::min<size_t>(steps, std::numeric_limits<uint32_t>::max()));
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher() {
    pcre2_jit_stack_free(stack_);
    pcre2_match_context_free(context_);
    pcre2_match_data_free(data_);
  }

  int Match(size_t at) {
    const int result = TryMatch(at);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT || stack_ != nullptr) return result;
    stack_ = pcre2_jit_stack_create(kMinJitStackBytes, kMaxJitStackBytes, nullptr);
    pcre2_jit_stack_assign(context_, nullptr, stack_);
    return TryMatch(at);
  }
  Span span() const {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_);
    return {.begin = bounds[0], .end = bounds[1]};
  }

 private:
  int TryMatch(size_t at) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(symbols_.data()), symbols_.size(), at, 0, data_, context_);
  }

  const pcre2_code* code_;
  absl::string_view symbols_;
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_ = nullptr;  // only for a pattern that needs more than its part of the machine stack
};

}  // namespace

void Pattern::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<Pattern> Pattern::Compile(absl::string_view expression) {
  FT_ASSIGN_OR_RETURN(const ParsedPattern parsed, ParsePattern(expression));
  absl::StatusOr<CharClasses> classes = CharClasses::Make(parsed.sets);
  if (!classes.ok()) return Refused(expression, classes.status().message());
  const std::string symbolic = OverSymbols(parsed, *classes);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  FT_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // In Ruby, ^ and $ always match at line ends.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(symbolic.data()), symbolic.size(), PCRE2_MULTILINE,
                                   &error, &error_offset, context.get());
  if (code == nullptr) return Refused(expression, absl::StrCat("does not compile: ", Pcre2Message(error)));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if it fails, pcre2_match interprets the pattern
  return Pattern(Expression{.text = std::string(expression),
                            .classes = *std::move(classes),
                            .code = std::unique_ptr<pcre2_real_code_8, CodeDeleter>(code)});
}

Pattern Pattern::AnyOf(const CharSet& set) {
  absl::StatusOr<CharClasses> classes = CharClasses::Make({&set, 1});
  FT_CHECK(classes.ok());  // one set needs three symbols
  return Pattern(Member{.classes = *std::move(classes)});
}

absl::StatusOr<std::vector<Span>> Pattern::FindAll(absl::string_view text) const {
  return std::visit([text](const auto& kind) -> absl::StatusOr<std::vector<Span>> { return Find(kind, text); }, kind_);
}

absl::StatusOr<std::vector<Span>> Pattern::Find(const Expression& expression, absl::string_view text) {
  const SpelledText spelled = expression.classes.Spell(text);
  Matcher matcher(expression.code.get(), spelled.symbols, text.size());
  std::vector<Span> spans;
  for (size_t at = 0; at <= spelled.symbols.size();) {
    const int result = matcher.Match(at);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("pattern ", expression.text, " gave up on a text of ",
                                                       text.size(), " bytes at byte ", spelled.OffsetOf(at), ": ",
                                                       Pcre2Message(result)));
    }
    const Span span = matcher.span();
    FT_CHECK(span.begin >= at && span.begin <= span.end);
    spans.push_back({.begin = spelled.OffsetOf(span.begin), .end = spelled.OffsetOf(span.end)});
    at = span.end > span.begin ? span.end : span.end + 1;
  }
  return spans;
}

std::vector<Span> Pattern::Find(const std::string& literal, absl::string_view text) {
  std::vector<Span> spans;
  if (literal.empty()) return spans;
  for (size_t at = text.find(literal); at != absl::string_view::npos; at = text.find(literal, at + literal.size())) {
    spans.push_back({.begin = at, .end = at + literal.size()});
  }
  return spans;
}

std::vector<Span> Pattern::Find(const Member& member, absl::string_view text) {
  std::vector<Span> spans;
  const std::string& symbols = member.classes.SymbolsOf(0);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text, at);
    const bool is_member = symbols.find(static_cast<char>(member.classes.SymbolOf(c.value))) != std::string::npos;
    if (is_member) spans.push_back({.begin = at, .end = at + c.num_bytes});
    at += c.num_bytes;
  }
  return spans;
}

}  // namespace foretoken::tokenizer
