// SPDX-License-Identifier: Apache-2.0
// foretoken tokenize: shows the tokens of a text, one per line.
#include <iostream>
#include <limits>

#include "absl/flags/flag.h"
#include "client/commands/commands.h"
#include "client/commands/connect_flags.h"
#include "client/commands/prompts.h"
#include "client/commands/request_flags.h"
#include "client/quoted.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {
namespace {

constexpr size_t kAllColumns = std::numeric_limits<size_t>::max();

absl::Status Tokenize(const std::vector<std::string>& arguments) {
  FT_ASSIGN_OR_RETURN(foretoken::v1::GenerateRequest prompt, RequestFromFlags());
  FT_RETURN_IF_ERROR(SetPromptFromFlags(arguments, prompt));
  foretoken::v1::TokenizeRequest request;
  request.set_model(prompt.model());
  request.set_text(prompt.text());
  if (prompt.has_add_special_tokens()) request.set_add_special_tokens(prompt.add_special_tokens());
  if (prompt.has_parse_special_tokens()) request.set_parse_special_tokens(prompt.parse_special_tokens());

  FT_ASSIGN_OR_RETURN(GenerationClient client, ConnectFromFlags());
  FT_ASSIGN_OR_RETURN(const foretoken::v1::TokenizeResponse response, client.Tokenize(request));
  if (absl::GetFlag(FLAGS_json)) {
    const std::vector<uint32_t> ids(response.token_ids().begin(), response.token_ids().end());
    std::cout << nlohmann::ordered_json{{"token_ids", ids}}.dump() << std::endl;
    return absl::OkStatus();
  }
  for (int i = 0; i < response.token_ids_size(); ++i) {
    std::cout << response.token_ids(i);
    if (i < response.token_bytes_size()) std::cout << "\t" << Quoted(response.token_bytes(i), kAllColumns);
    std::cout << "\n";
  }
  std::cerr << response.token_ids_size() << " tokens" << std::endl;
  return absl::OkStatus();
}

}  // namespace

int RunTokenize(const std::vector<std::string>& arguments) { return ExitCode(Tokenize(arguments)); }

}  // namespace foretoken::client
