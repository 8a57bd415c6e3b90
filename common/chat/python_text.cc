// SPDX-License-Identifier: Apache-2.0
#include "common/chat/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
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

}  // namespace jinja
