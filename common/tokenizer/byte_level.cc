// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::tokenizer {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr int kNumStandIns = 68;

constexpr bool StandsForItself(char32_t c) {
  return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

constexpr std::array<uint8_t, kNumStandIns> MakeStandIns() {
  std::array<uint8_t, kNumStandIns> bytes{};
  int num = 0;
  for (char32_t byte = 0; byte < 256; ++byte) {
    if (!StandsForItself(byte)) bytes[num++] = static_cast<uint8_t>(byte);
  }
  return bytes;
}

constexpr std::array<uint8_t, kNumStandIns> kStandIns = MakeStandIns();

constexpr std::array<char32_t, 256> MakeSpellings() {
  std::array<char32_t, 256> spellings{};
  for (char32_t byte = 0; byte < 256; ++byte) spellings[byte] = byte;
  for (char32_t i = 0; i < kNumStandIns; ++i) spellings[kStandIns[i]] = kFirstStandIn + i;
  return spellings;
}

constexpr std::array<char32_t, 256> kSpellings = MakeSpellings();

}  // namespace

std::optional<std::string> BytesOfSpelling(absl::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  for (size_t i = 0; i < spelling.size();) {
    const CodePoint c = DecodeUtf8(spelling, i);
    if (StandsForItself(c.value)) {
      bytes.push_back(static_cast<char>(c.value));
    } else if (c.value >= kFirstStandIn && c.value < kFirstStandIn + kNumStandIns) {
      bytes.push_back(static_cast<char>(kStandIns[c.value - kFirstStandIn]));
    } else {
      return std::nullopt;
    }
    i += c.num_bytes;
  }
  return bytes;
}

std::string SpellingOfBytes(absl::string_view bytes) {
  std::string spelling;
  spelling.reserve(2 * bytes.size());
  for (const char byte : bytes) AppendUtf8(kSpellings[static_cast<uint8_t>(byte)], spelling);
  return spelling;
}

}  // namespace foretoken::tokenizer
