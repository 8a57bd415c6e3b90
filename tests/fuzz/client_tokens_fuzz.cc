// SPDX-License-Identifier: Apache-2.0
// Reads the input as an authorization header, a line feed, and a file of client tokens. Every token of an accepted file
// opens the door, and the header opens it only if it holds a line of the file.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/check.h"
#include "tests/testing/temp_dir.h"
#include "verifier_service/api/client_tokens.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const foretoken::testing::TempDir directory;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(input, absl::MaxSplits('\n', 1));
  const std::string path = directory.Write("tokens", {parts.second.data(), parts.second.size()});
  const auto tokens = foretoken::verifier::ClientTokens::Load(path);
  if (!tokens.ok()) {
    FT_CHECK(absl::IsInvalidArgument(tokens.status()));
    return 0;
  }
  absl::string_view lines = parts.second;
  absl::ConsumePrefix(&lines, "\xEF\xBB\xBF");  // UTF-8's mark is no part of a token
  bool may_enter = false;
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    const absl::string_view token = absl::StripAsciiWhitespace(line);
    if (token.empty() || token.front() == '#') continue;
    FT_CHECK((*tokens)->Check(absl::StrCat("Bearer ", token)).ok());
    may_enter |= absl::EndsWith(absl::StripAsciiWhitespace(parts.first), token);
  }
  const absl::Status status = (*tokens)->Check(parts.first);
  FT_CHECK(status.ok() ? may_enter : absl::IsUnauthenticated(status));
  return 0;
}
