// SPDX-License-Identifier: Apache-2.0
// The bytes of the token ids that reports and log-probabilities speak of, asked of the server in one call.
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

  // "#7" for a token that the server told nothing of.
  std::string Of(uint32_t token_id) const;
  // Of several, joined.
  std::string Of(std::span<const uint32_t> token_ids) const;

 private:
  std::map<uint32_t, std::string> bytes_;
};

// Every token of the reports' trees and outputs, and of the log-probabilities.
absl::StatusOr<TokenTexts> FetchTokenTexts(GenerationClient& client, const std::string& model,
                                           const Generation& generation);

}  // namespace foretoken::client
