// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/pattern_parser.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::tokenizer {
namespace {

constexpr int kMaxClassDepth = 16;
constexpr char32_t kLongS = 0x17f;        // folds to s
constexpr char32_t kKelvinSign = 0x212a;  // folds to k
constexpr char32_t kEndOfAscii = 0x80;

CharSet Only(char32_t c) { return {c, c}; }

// The characters that match an ASCII character under (?i).
CharSet FoldAscii(char32_t c) {
  CharSet set = Only(c);
  const auto ascii = static_cast<unsigned char>(c);
  set.Add(Only(static_cast<unsigned char>(absl::ascii_tolower(ascii))));
  set.Add(Only(static_cast<unsigned char>(absl::ascii_toupper(ascii))));
  if (c == 's' || c == 'S') set.Add(Only(kLongS));
  if (c == 'k' || c == 'K') set.Add(Only(kKelvinSign));
  return set;
}

// The meaning of \w outside a class: there Oniguruma's word characters include Latin-1's superscripts and fractions.
CharSet LoneWordSet() {
  CharSet set = WordSet();
  for (const char32_t c : {0xb2, 0xb3, 0xb9, 0xbc, 0xbd, 0xbe}) set.Add(Only(c));
  return set;
}

bool MayHaveCase(char32_t c) {
  static const CharSet* const uncased = [] {
    CharSet set;
    for (const char* name : {"P", "Sm", "Sc", "Sk", "Z", "Nd"}) set.Add(*PropertySet(name));
    return new CharSet(std::move(set));
  }();
  return Only(c).Intersection(*uncased).ranges().empty();
}

class Parser {
 public:
  explicit Parser(absl::string_view expression) : in_(expression) {}

  absl::StatusOr<ParsedPattern> Run() {
    if (Take("(?i)")) ignores_case_ = true;
    while (!AtEnd()) FT_RETURN_IF_ERROR(Construct());
    if (!outer_cases_.empty()) return Refused("a group is not closed");
    return std::move(out_);
  }

 private:
  using Escape = std::variant<CharSet, char32_t>;

  bool AtEnd() const { return at_ == in_.size(); }
  bool Sees(absl::string_view text) const { return absl::StartsWith(in_.substr(at_), text); }
  bool Take(absl::string_view text) {
    if (!Sees(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t TakeCharacter() {
    const CodePoint c = DecodeUtf8(in_, at_);
    at_ += c.num_bytes;
    return c.value;
  }

  template <typename... Parts>
  absl::Status Refused(const Parts&... why) const {
    return absl::InvalidArgumentError(absl::StrCat("pattern ", in_, ": ", why...));
  }

  void Put(absl::string_view operators) { out_.pieces.emplace_back(std::string(operators)); }
  void Put(CharSet set) {
    const auto known = std::find(out_.sets.begin(), out_.sets.end(), set);
    out_.pieces.emplace_back(static_cast<size_t>(known - out_.sets.begin()));
    if (known == out_.sets.end()) out_.sets.push_back(std::move(set));
  }

  absl::Status Construct() {
    previous_literal_ = std::exchange(literal_, std::nullopt);
    if (Sees("\\")) return EscapeOutsideClass();
    if (Take("[")) {
      FT_ASSIGN_OR_RETURN(CharSet set, Class(0));
      Put(std::move(set));
      return absl::OkStatus();
    }
    if (Take("(")) return OpenGroup();
    if (Take(")")) return CloseGroup();
    if (Sees("*") || Sees("+") || Sees("?")) return Quantifier();
    if (Sees("{") && IntervalLength() > 0) return Interval();
    if (Take(".")) {
      Put(Only('\n').Complement());
      return absl::OkStatus();
    }
    for (const char* anchor : {"^", "$", "|"}) {
      if (!Take(anchor)) continue;
      Put(anchor);
      return absl::OkStatus();
    }
    return Literal(TakeCharacter());
  }

  absl::Status Literal(char32_t c) {
    FT_ASSIGN_OR_RETURN(CharSet set, Folded(c));
    FT_RETURN_IF_ERROR(RefuseLigature(c));
    literal_ = c;
    Put(std::move(set));
    return absl::OkStatus();
  }

  // Under (?i) Oniguruma matches "ss" with a sharp s, and "fi" with the ligature: two characters with one.
  absl::Status RefuseLigature(char32_t c) const {
    if (!ignores_case_ || !previous_literal_ || *previous_literal_ >= kEndOfAscii || c >= kEndOfAscii) {
      return absl::OkStatus();
    }
    const std::string characters = {static_cast<char>(*previous_literal_), static_cast<char>(c)};
    const std::string pair = absl::AsciiStrToLower(characters);
    for (const char* ligature : {"ss", "st", "ff", "fi", "fl"}) {
      if (pair == ligature) return Refused("\"", pair, "\" under (?i) is not supported");
    }
    return absl::OkStatus();
  }

  // The character and, under (?i), all characters that differ from it only in case.
  absl::StatusOr<CharSet> Folded(char32_t c) const {
    if (!ignores_case_) return Only(c);
    if (c < kEndOfAscii) return FoldAscii(c);
    if (MayHaveCase(c)) return Refused("a letter beyond ASCII under (?i) is not supported");
    return Only(c);
  }

  absl::Status OpenGroup() {
    outer_cases_.push_back(ignores_case_);
    for (const char* opening : {"?:", "?=", "?!", "?>", "?<=", "?<!"}) {
      if (!Take(opening)) continue;
      Put(absl::StrCat("(", opening));
      return absl::OkStatus();
    }
    if (Sees("?i:") || Sees("?-i:")) {
      ignores_case_ = Take("?i:") || !Take("?-i:");
      Put("(?:");
      return absl::OkStatus();
    }
    if (Sees("?") || Sees("*"))
      return Refused("a group that starts like ", in_.substr(at_ - 1, 4), " is not supported");
    Put("(?:");
    return absl::OkStatus();
  }

  absl::Status CloseGroup() {
    if (outer_cases_.empty()) return Refused("a closing bracket has no opening one");
    ignores_case_ = outer_cases_.back();
    outer_cases_.pop_back();
    Put(")");
    return absl::OkStatus();
  }

  absl::Status Quantifier() {
    const size_t begin = at_++;
    if (!Take("+")) Take("?");
    Put(in_.substr(begin, at_ - begin));
    return RefuseSecondQuantifier();
  }

  absl::Status RefuseSecondQuantifier() const {
    const bool is_second = Sees("*") || Sees("+") || Sees("?") || (Sees("{") && IntervalLength() > 0);
    return is_second ? Refused("a quantifier of a quantifier is not supported") : absl::OkStatus();
  }

  // The length of "{n}", "{n,}", "{,m}" or "{n,m}" at this place; 0: there is none, and "{" is a character.
  size_t IntervalLength() const {
    size_t end = at_ + 1;
    size_t num_digits = 0;
    size_t num_commas = 0;
    for (; end < in_.size() && (absl::ascii_isdigit(in_[end]) || in_[end] == ','); ++end) {
      ++(in_[end] == ',' ? num_commas : num_digits);
    }
    const bool is_interval = end < in_.size() && in_[end] == '}' && num_digits > 0 && num_commas <= 1;
    return is_interval ? end + 1 - at_ : 0;
  }

  absl::Status Interval() {
    const absl::string_view interval = in_.substr(at_, IntervalLength());
    at_ += interval.size();
    Put(interval[1] == ',' ? absl::StrCat("{0", interval.substr(1)) : std::string(interval));
    if (Sees("+")) return Refused("a repeated \"{n,m}+\" is not supported");
    if (Sees("?") && !absl::StrContains(interval, ',')) return Refused("\"{n}?\" is not supported");
    if (Take("?")) Put("?");
    return RefuseSecondQuantifier();
  }

  absl::Status EscapeOutsideClass() {
    for (const char* anchor : {"\\A", "\\z", "\\Z"}) {
      if (!Take(anchor)) continue;
      Put(anchor);
      return absl::OkStatus();
    }
    if (Take("\\w")) {
      Put(LoneWordSet());
      return absl::OkStatus();
    }
    if (Take("\\W")) {
      Put(LoneWordSet().Complement());
      return absl::OkStatus();
    }
    FT_ASSIGN_OR_RETURN(Escape escape, TakeEscape());
    if (const char32_t* c = std::get_if<char32_t>(&escape)) return Literal(*c);
    Put(std::get<CharSet>(std::move(escape)));
    return absl::OkStatus();
  }

  // Takes a backslash and the characters that belong to it, inside a class or not.
  absl::StatusOr<Escape> TakeEscape() {
    ++at_;
    if (AtEnd()) return Refused("it ends in a lone backslash");
    const char32_t kind = TakeCharacter();
    switch (kind) {
      case 's':
        return WhiteSpaceSet();
      case 'S':
        return WhiteSpaceSet().Complement();
      case 'd':
        return *PropertySet("Nd");
      case 'D':
        return PropertySet("Nd")->Complement();
      case 'w':
        return WordSet();
      case 'W':
        return WordSet().Complement();
      case 'p':
        return TakeProperty(/*is_negated=*/false);
      case 'P':
        return TakeProperty(/*is_negated=*/true);
      case 'x':
      case 'u':
        return TakeHex(kind);
      default:
        return EscapedCharacter(kind);
    }
  }

  absl::StatusOr<Escape> EscapedCharacter(char32_t kind) const {
    constexpr std::pair<char, char32_t> kControls[] = {{'t', '\t'}, {'n', '\n'}, {'r', '\r'},  {'f', '\f'},
                                                       {'v', '\v'}, {'a', '\a'}, {'e', '\x1b'}};
    for (const auto& [name, value] : kControls) {
      if (kind == static_cast<char32_t>(name)) return value;
    }
    const bool has_meaning = kind < kEndOfAscii && absl::ascii_isalnum(static_cast<unsigned char>(kind));
    if (!has_meaning) return kind;
    return Refused("\\", std::string(1, static_cast<char>(kind)), " is not supported");
  }

  // Takes "{Lu}" or "{^Lu}" of \p{Lu}.
  absl::StatusOr<Escape> TakeProperty(bool is_negated) {
    const size_t end = in_.find('}', at_);
    if (!Take("{") || end == absl::string_view::npos) return Refused("a property without {NAME}");
    if (ignores_case_) return Refused("a property under (?i) is not supported");
    if (Take("^")) is_negated = !is_negated;
    const absl::string_view name = in_.substr(at_, end - at_);
    at_ = end + 1;
    std::optional<CharSet> set = PropertySet(name);
    if (!set) return Refused("property \"", name, "\" is not supported");
    return is_negated ? set->Complement() : *std::move(set);
  }

  // Takes "41" or "{41}" of \x41, "0041" of \u0041.
  absl::StatusOr<Escape> TakeHex(char32_t kind) {
    const bool has_braces = kind == 'x' && Take("{");
    size_t end = at_;
    const size_t most = has_braces ? 6 : kind == 'x' ? 2 : 4;
    while (end < in_.size() && end - at_ < most && absl::ascii_isxdigit(in_[end])) ++end;
    uint32_t value = 0;
    const bool is_number = absl::SimpleHexAtoi(in_.substr(at_, end - at_), &value) && value <= 0x10ffff &&
                           (kind == 'x' || end - at_ == most);
    at_ = end;
    if (!is_number || (has_braces && !Take("}")))
      return Refused("\\", std::string(1, static_cast<char>(kind)), " without the number of a character");
    return char32_t{value};
  }

  // Takes the rest of a class after its "[".
  absl::StatusOr<CharSet> Class(int depth) {
    if (depth == kMaxClassDepth) return Refused("classes are nested more than ", kMaxClassDepth, " deep");
    const bool is_negated = Take("^");
    std::optional<CharSet> left;  // the left side of "&&"
    CharSet set;
    for (bool is_first = true; is_first || !Take("]"); is_first = false) {
      if (AtEnd()) return Refused("a class is not closed");
      if (Take("&&")) {
        left = left ? left->Intersection(set) : set;
        set = CharSet();
        continue;
      }
      FT_RETURN_IF_ERROR(ClassItem(depth, set));
    }
    if (left) set = left->Intersection(set);
    return is_negated ? set.Complement() : set;
  }

  absl::Status ClassItem(int depth, CharSet& set) {
    if (Sees("[:")) return Refused("a POSIX bracket is not supported");
    if (Take("[")) {
      FT_ASSIGN_OR_RETURN(const CharSet nested, Class(depth + 1));
      set.Add(nested);
      return absl::OkStatus();
    }
    FT_ASSIGN_OR_RETURN(const Escape first, TakeClassMember());
    if (const auto* whole = std::get_if<CharSet>(&first)) {
      set.Add(*whole);
      return absl::OkStatus();
    }
    const auto begin = std::get<char32_t>(first);
    const bool is_range = Sees("-") && at_ + 1 < in_.size() && in_[at_ + 1] != ']';
    if (!is_range) {
      FT_ASSIGN_OR_RETURN(const CharSet folded, Folded(begin));
      set.Add(folded);
      return absl::OkStatus();
    }
    ++at_;
    return Range(begin, set);
  }

  // Takes the rest of a range after its "-".
  absl::Status Range(char32_t begin, CharSet& set) {
    if (Sees("[")) return Refused("a range to a class");
    FT_ASSIGN_OR_RETURN(const Escape last, TakeClassMember());
    const auto* end = std::get_if<char32_t>(&last);
    if (end == nullptr || *end < begin) return Refused("a range without an end, or that ends before it begins");
    if (!ignores_case_) {
      set.Add({begin, *end});
      return absl::OkStatus();
    }
    if (*end >= kEndOfAscii) return Refused("a range beyond ASCII under (?i) is not supported");
    for (char32_t c = begin; c <= *end; ++c) set.Add(FoldAscii(c));
    return absl::OkStatus();
  }

  absl::StatusOr<Escape> TakeClassMember() {
    if (AtEnd()) return Refused("a class is not closed");
    if (Sees("\\")) return TakeEscape();
    return TakeCharacter();
  }

  absl::string_view in_;
  size_t at_ = 0;
  bool ignores_case_ = false;
  std::vector<bool> outer_cases_;             // ignores_case_ outside of each open group
  std::optional<char32_t> literal_;           // the last construct, if it was a literal
  std::optional<char32_t> previous_literal_;  // the construct before it, if it was a literal
  ParsedPattern out_;
};

}  // namespace

absl::StatusOr<ParsedPattern> ParsePattern(absl::string_view expression) {
  if (FirstInvalidUtf8(expression)) return absl::InvalidArgumentError("pattern: expected UTF-8");
  return Parser(expression).Run();
}

}  // namespace foretoken::tokenizer
