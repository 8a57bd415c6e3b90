// SPDX-License-Identifier: Apache-2.0
// Reads the input as a tokenizer.json and, behind it, a tokenizer_config.json. An accepted tokenizer encodes and
// decodes some texts, among them the beginning of the input. Every id is a token, and a text decoded token by token is
// the text decoded whole.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "kernels/check.h"
#include "tests/fuzz/messages.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::tokenizer {
namespace {

constexpr size_t kMaxTextBytes = 256;

void CheckDecoding(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const DecodeOptions& options) {
  const absl::StatusOr<std::string> whole = tokenizer.Decode(ids, options);
  FT_CHECK(whole.ok());
  IncrementalDecoder decoder(tokenizer, options);
  std::string text;
  for (const int32_t id : ids) text += decoder.Append(id);
  text += decoder.Flush();
  FT_CHECK(text == *whole);
}

void CheckText(const Tokenizer& tokenizer, const std::string& text) {
  for (const bool parses_special : {false, true}) {
    const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text, {.parse_special = parses_special});
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) FT_CHECK(tokenizer.vocabulary().Find(id) != nullptr);
    CheckDecoding(tokenizer, *ids, {});
    CheckDecoding(tokenizer, *ids, {.skip_special = true, .continues_text = true});
  }
}

}  // namespace
}  // namespace foretoken::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const foretoken::testing::TempDir directory;
  const std::vector<absl::string_view> files = foretoken::testing::SplitMessages(data, size);
  const std::string input(files.front());
  directory.Write("tokenizer.json", input);
  directory.Write("tokenizer_config.json", files.size() > 1 ? std::string(files[1]) : "{}");
  const auto tokenizer = foretoken::tokenizer::Tokenizer::Load(directory.path());
  if (!tokenizer.ok()) return 0;
  for (const char* text : {"", "a", " Hello  world's 1234\r\n\t", "\xC3\xA9\xE2\x82\xAC \xF0\x9F\x98\x80 e\xCC\x81"}) {
    foretoken::tokenizer::CheckText(*tokenizer, text);
  }
  foretoken::tokenizer::CheckText(*tokenizer, input.substr(0, foretoken::tokenizer::kMaxTextBytes));
  std::vector<int32_t> all;
  for (int32_t id = 0; id < static_cast<int32_t>(tokenizer->vocabulary().num_ids()); ++id) {
    if (tokenizer->vocabulary().Find(id) != nullptr) all.push_back(id);
  }
  foretoken::tokenizer::CheckDecoding(*tokenizer, all, {});
  return 0;
}
