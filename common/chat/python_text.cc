// SPDX-License-Identifier: Apache-2.0
#include "common/chat/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/utf8_bytes.h"
#include "jinja/utils.h"

namespace foretoken::chat {
namespace {

// Every character for which Python's str.isspace is true, in UTF-8.
constexpr absl::string_view kSpaces[] = {" ",
                                         "\t",
                                         "\n",
                                         "\v",
                                         "\f",
                                         "\r",
                                         "\x1c",
                                         "\x1d",
                                         "\x1e",
                                         "\x1f",
                                         "\xc2\x85",
                                         "\xc2\xa0",
                                         "\xe1\x9a\x80",
                                         "\xe2\x80\x80",
                                         "\xe2\x80\x81",
                                         "\xe2\x80\x82",
                                         "\xe2\x80\x83",
                                         "\xe2\x80\x84",
                                         "\xe2\x80\x85",
                                         "\xe2\x80\x86",
                                         "\xe2\x80\x87",
                                         "\xe2\x80\x88",
                                         "\xe2\x80\x89",
                                         "\xe2\x80\x8a",
                                         "\xe2\x80\xa8",
                                         "\xe2\x80\xa9",
                                         "\xe2\x80\xaf",
                                         "\xe2\x81\x9f",
                                         "\xe3\x80\x80"};

}  // namespace

std::string PythonFloat(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  // The shortest digits that read back as the number: "-d.ddde-dd".
  char buffer[32];
  const std::to_chars_result end =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific);
  const absl::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {
    return absl::StrFormat("%se%s%02d", text.substr(0, e), exponent < 0 ? "-" : "+", std::abs(exponent));
  }
  char fixed[64];
  const std::to_chars_result fixed_end = std::to_chars(fixed, fixed + sizeof(fixed), number, std::chars_format::fixed);
  std::string digits(fixed, fixed_end.ptr);
  if (!absl::StrContains(digits, '.')) absl::StrAppend(&digits, ".0");
  return digits;
}

std::string PythonRepr(absl::string_view text) {
  const char quote = absl::StrContains(text, '\'') && !absl::StrContains(text, '"') ? '"' : '\'';
  std::string repr(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      repr += {'\\', c};
    } else if (c == '\n') {
      repr += "\\n";
    } else if (c == '\r') {
      repr += "\\r";
    } else if (c == '\t') {
      repr += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&repr, "\\x%02x", byte);
    } else {
      repr += c;
    }
  }
  return repr + quote;
}

absl::string_view StripSpace(absl::string_view text, bool left, bool right) {
  const auto strip = [&](auto has, auto remove) {
    while (true) {
      const auto* space = std::find_if(std::begin(kSpaces), std::end(kSpaces), has);
      if (space == std::end(kSpaces)) return;
      remove(space->size());
    }
  };
  if (left) {
    strip([&](absl::string_view space) { return absl::StartsWith(text, space); },
          [&](size_t n) { text.remove_prefix(n); });
  }
  if (right) {
    strip([&](absl::string_view space) { return absl::EndsWith(text, space); },
          [&](size_t n) { text.remove_suffix(n); });
  }
  return text;
}

size_t NumCharacters(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !base::ContinuesCharacter(c); }));
}

std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = begin + 1;
    while (end < text.size() && base::ContinuesCharacter(text[end])) ++end;
    characters.push_back(text.substr(begin, end - begin));
  }
  return characters;
}

std::string ChangeCase(absl::string_view text, bool upper) {
  std::string changed;
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t codepoint = -1;
    const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + i);
    const utf8proc_ssize_t num_bytes =
        utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - i), &codepoint);
    const size_t num_taken = num_bytes > 0 ? static_cast<size_t>(num_bytes) : 1;
    utf8proc_uint8_t encoded[4];
    if (upper && text.substr(i, num_taken) == "ß") {
      changed += "SS";
    } else if (num_bytes > 0) {
      codepoint = upper ? utf8proc_toupper(codepoint) : utf8proc_tolower(codepoint);
      changed.append(reinterpret_cast<const char*>(encoded),
                     static_cast<size_t>(utf8proc_encode_char(codepoint, encoded)));
    } else {
      changed += text[i];
    }
    i += num_taken;
  }
  return changed;
}

}  // namespace foretoken::chat

// What the patched engine calls.
namespace jinja {

std::string float_repr(double v) { return foretoken::chat::PythonFloat(v); }

std::string string_repr(const std::string& s) { return foretoken::chat::PythonRepr(s); }

std::string_view strip_space(std::string_view s, bool left, bool right) {
  const absl::string_view stripped = foretoken::chat::StripSpace({s.data(), s.size()}, left, right);
  return {stripped.data(), stripped.size()};
}

size_t num_characters(std::string_view s) { return foretoken::chat::NumCharacters({s.data(), s.size()}); }

std::vector<std::string_view> characters(std::string_view s) {
  charge(s.size() * sizeof(std::string_view));
  return foretoken::chat::Characters(s);
}

std::string change_case(std::string_view s, bool upper) {
  charge(s.size() * sizeof(utf8proc_int32_t));
  return foretoken::chat::ChangeCase({s.data(), s.size()}, upper);
}

}  // namespace jinja
