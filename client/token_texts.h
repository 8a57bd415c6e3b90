// SPDX-License-Identifier: Apache-2.0
// The bytes of the tokens in reports and log-probabilities. The client gets them from the server in one call.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/generation_client.h"

namespace foretoken::client {

class TokenTexts {
 public:
  TokenTexts() = default;
  explicit TokenTexts(std::map<uint32_t, std::string> bytes) : bytes_(std::move(bytes)) {}

  // The token's bytes, or "#7" if the server sent none for the token 7.
  std::string Of(uint32_t token_id) const;
  // The bytes of several tokens, joined.
  std::string Of(std::span<const uint32_t> token_ids) const;

 private:
  std::map<uint32_t, std::string> bytes_;
};

// Fetches the bytes of all tokens of the reports' trees and outputs, and of the log-probabilities.
absl::StatusOr<TokenTexts> FetchTokenTexts(GenerationClient& client, const std::string& model,
                                           const Generation& generation);

}  // namespace foretoken::client
