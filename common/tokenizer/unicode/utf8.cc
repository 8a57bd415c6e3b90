// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/unicode/utf8.h"

#include "common/base/utf8_bytes.h"

namespace foretoken::tokenizer {
namespace {

constexpr char kReplacementCharacter[] = "\xef\xbf\xbd";

bool IsLead(uint8_t byte) { return byte >= 0xc2 && byte <= 0xf4; }

// Table 3-7: the second byte's range depends on the first.
bool IsSecondAfter(uint8_t lead, uint8_t byte) {
  const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return byte >= low && byte <= high;
}

}  // namespace

std::optional<size_t> FirstInvalidUtf8(absl::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    if (bytes[i] < 0x80) {
      ++i;
      continue;
    }
    if (!IsLead(bytes[i])) return i;
    const size_t length = Utf8Length(text[i]);
    if (i + length > text.size() || !IsSecondAfter(bytes[i], bytes[i + 1])) return i;
    for (size_t k = 2; k < length; ++k) {
      if (!base::ContinuesCharacter(text[i + k])) return i;
    }
    i += length;
  }
  return std::nullopt;
}

CodePoint DecodeUtf8(absl::string_view text, size_t at) {
  const size_t length = Utf8Length(text[at]);
  const auto byte = [&](size_t k) { return static_cast<char32_t>(static_cast<uint8_t>(text[at + k])); };
  if (length == 1) return {byte(0), 1};
  char32_t value = byte(0) & (0x7fu >> length);
  for (size_t k = 1; k < length; ++k) value = value << 6 | (byte(k) & 0x3f);
  return {value, length};
}

void AppendUtf8(char32_t value, std::string& out) {
  const auto push = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    push(value);
  } else if (value < 0x800) {
    push(0xc0 | value >> 6);
    push(0x80 | (value & 0x3f));
  } else if (value < 0x10000) {
    push(0xe0 | value >> 12);
    push(0x80 | (value >> 6 & 0x3f));
    push(0x80 | (value & 0x3f));
  } else {
    push(0xf0 | value >> 18);
    push(0x80 | (value >> 12 & 0x3f));
    push(0x80 | (value >> 6 & 0x3f));
    push(0x80 | (value & 0x3f));
  }
}

bool Utf8Assembler::Continues(uint8_t byte) const {
  if (held_back_.empty()) return IsLead(byte);
  if (held_back_.size() == 1) return IsSecondAfter(static_cast<uint8_t>(held_back_[0]), byte);
  return base::ContinuesCharacter(static_cast<char>(byte));
}

void Utf8Assembler::Append(absl::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (!held_back_.empty() && !Continues(byte)) Flush(out);
    if (byte < 0x80) {
      out.push_back(c);
    } else if (!Continues(byte)) {
      out.append(kReplacementCharacter);
    } else {
      held_back_.push_back(c);
      if (held_back_.size() == Utf8Length(held_back_[0])) {
        out.append(held_back_);
        held_back_.clear();
      }
    }
  }
}

void Utf8Assembler::Flush(std::string& out) {
  if (held_back_.empty()) return;
  const size_t count = replacement_ == Replacement::kPerByte ? held_back_.size() : 1;
  for (size_t i = 0; i < count; ++i) out.append(kReplacementCharacter);
  held_back_.clear();
}

std::string ValidUtf8(absl::string_view text) {
  if (!FirstInvalidUtf8(text).has_value()) return std::string(text);
  std::string valid;
  Utf8Assembler assembler(Replacement::kPerSequence);
  assembler.Append(text, valid);
  assembler.Flush(valid);
  return valid;
}

}  // namespace foretoken::tokenizer
