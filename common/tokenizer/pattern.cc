// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/tokenizer/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"
#include "kernels/check.h"

namespace foretoken::tokenizer {
namespace {

// A linear match backtracks over a run of characters once per alternative; these leave room for dozens of alternatives.
constexpr size_t kStepsPerByte = 64;
constexpr size_t kMinSteps = 1'000'000;
constexpr size_t kMinJitStackBytes = 64 << 10;
constexpr size_t kMaxJitStackBytes = 8 << 20;

// Oniguruma's \w: letters, marks, decimal digits, connectors.
constexpr absl::string_view kWordProperties = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

absl::Status Refused(absl::string_view expression, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("pattern ", expression, ": ", why));
}

std::string Pcre2Message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// From Oniguruma's spelling to PCRE2's, one construct at a time.
class Translator {
 public:
  explicit Translator(absl::string_view expression) : in_(expression) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < in_.size()) FT_RETURN_IF_ERROR(in_[at_] == '\\' ? Escape() : Plain());
    return std::move(out_);
  }

 private:
  absl::Status Escape() {
    if (at_ + 1 == in_.size()) return Refused(in_, "ends in a lone backslash");
    const char kind = in_[at_ + 1];
    at_ += 2;
    switch (kind) {
      case 's':
        absl::StrAppend(&out_, "\\p{White_Space}");
        break;
      case 'S':
        absl::StrAppend(&out_, "\\P{White_Space}");
        break;
      case 'w':
        in_class_ ? absl::StrAppend(&out_, kWordProperties) : absl::StrAppend(&out_, "[", kWordProperties, "]");
        break;
      case 'W':
        if (in_class_) return Refused(in_, "\\W inside a class is not supported");
        absl::StrAppend(&out_, "[^", kWordProperties, "]");
        break;
      case 'b':
      case 'B':
      case 'h':
      case 'H':
        return Refused(in_, absl::StrCat("\\", std::string(1, kind), " is not supported"));
      default:
        out_ += '\\';
        out_ += kind;
        if (in_.substr(at_, 1) == "{") CopyBraces();  // \p{L}
    }
    class_just_opened_ = false;
    return absl::OkStatus();
  }

  void CopyBraces() {
    const size_t end = std::min(in_.find('}', at_), in_.size() - 1) + 1;
    absl::StrAppend(&out_, in_.substr(at_, end - at_));
    at_ = end;
  }

  absl::Status Plain() {
    const char c = in_[at_];
    const bool doubled_and = in_.substr(at_, 2) == "&&";
    if (in_class_ && (c == '[' || doubled_and)) return Refused(in_, "a class within a class is not supported");
    if (!in_class_ && in_.substr(at_, 2) == "}+") return Refused(in_, "a repeated \"{n,m}+\" is not supported");
    if (in_class_ && c == ']' && !class_just_opened_) {
      in_class_ = false;
    } else if (!in_class_ && c == '[') {
      in_class_ = class_just_opened_ = true;
      out_ += c;
      if (in_.substr(++at_, 1) == "^") {
        out_ += '^';
        ++at_;
      }
      return absl::OkStatus();
    }
    class_just_opened_ = false;
    out_ += c;
    ++at_;
    return absl::OkStatus();
  }

  absl::string_view in_;
  size_t at_ = 0;
  bool in_class_ = false;
  bool class_just_opened_ = false;  // a "]" here is a character
  std::string out_;
};

// What one thread needs for one text.
class Matcher {
 public:
  Matcher(const pcre2_code* code, absl::string_view text)
      : code_(code),
        text_(text),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    FT_CHECK(data_ != nullptr && context_ != nullptr);
    const size_t steps = std::max(kMinSteps, text.size() * kStepsPerByte);
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
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at, PCRE2_NO_UTF_CHECK, data_,
                       context_);
  }

  const pcre2_code* code_;
  absl::string_view text_;
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_ = nullptr;  // only for a pattern that outgrows the machine stack's share
};

}  // namespace

void Pattern::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<Pattern> Pattern::Compile(absl::string_view expression) {
  FT_ASSIGN_OR_RETURN(std::string translated, Translator(expression).Run());
  return CompileTranslated(std::move(translated), expression);
}

absl::StatusOr<Pattern> Pattern::Literal(absl::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c))) quoted += '\\';
    quoted += c;
  }
  return CompileTranslated(std::move(quoted), text);
}

absl::StatusOr<Pattern> Pattern::CompileTranslated(std::string expression, absl::string_view original) {
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  // Ruby's ^ and $ always match at line ends; \C would split characters.
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  FT_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), kOptions, &error,
                                   &error_offset, context.get());
  if (code == nullptr) return Refused(original, absl::StrCat("does not compile: ", Pcre2Message(error)));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it fails, pcre2_match interprets
  return Pattern(std::string(original), code);
}

absl::StatusOr<std::vector<Span>> Pattern::FindAll(absl::string_view text) const {
  Matcher matcher(code_.get(), text);
  std::vector<Span> spans;
  size_t at = 0;
  while (at <= text.size()) {
    const int result = matcher.Match(at);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("pattern ", expression_, " gave up on a text of ", text.size(),
                                                       " bytes at byte ", at, ": ", Pcre2Message(result)));
    }
    const Span span = matcher.span();
    if (span.begin > span.end || span.begin < at) {  // \K in a lookaround can do that
      return absl::InvalidArgumentError(absl::StrCat("pattern ", expression_, " matches backwards at byte ", at));
    }
    spans.push_back(span);
    if (span.end > span.begin) {
      at = span.end;
    } else {
      at = span.end < text.size() ? span.end + Utf8Length(text[span.end]) : text.size() + 1;
    }
  }
  return spans;
}

}  // namespace foretoken::tokenizer
