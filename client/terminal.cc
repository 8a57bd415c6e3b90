// SPDX-License-Identifier: Apache-2.0
#include "client/terminal.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

absl::string_view Code(Ink ink) {
  switch (ink) {
    case Ink::kPlain:
      return "";
    case Ink::kBold:
      return "\x1b[1m";
    case Ink::kDim:
      return "\x1b[2m";
    case Ink::kGreen:
      return "\x1b[32m";
    case Ink::kRed:
      return "\x1b[31m";
  }
  return "";
}

}  // namespace

bool WantsColor(std::FILE* out, const char* no_color) {
  const bool is_refused = no_color != nullptr && *no_color != '\0';
  return !is_refused && isatty(fileno(out)) == 1;
}

std::string Paint(absl::string_view text, Ink ink) {
  return ink == Ink::kPlain ? std::string(text) : absl::StrCat(Code(ink), text, "\x1b[0m");
}

std::string EscapeControls(absl::string_view text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    // U+0080 to U+009F are controls, too. Their bytes are 0xc2, then 0x80 to 0x9f.
    const bool is_c1 = byte == 0xc2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if (is_c0) {
      absl::StrAppendFormat(&escaped, "\\x%02x", byte);
    } else if (is_c1) {
      absl::StrAppendFormat(&escaped, "\\x%02x", static_cast<unsigned char>(text[++i]));
    } else {
      escaped.push_back(text[i]);
    }
  }
  return escaped;
}

std::string JsonText(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
}

std::string ForTerminal(const TextRun& run, bool color) {
  return Paint(EscapeControls(run.text), color && run.speculated ? Ink::kGreen : Ink::kPlain);
}

}  // namespace foretoken::client
