// SPDX-License-Identifier: Apache-2.0
#include "client/token_texts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::client {

std::string TokenTexts::Of(uint32_t token_id) const {
  const auto found = bytes_.find(token_id);
  return found == bytes_.end() ? absl::StrCat("#", token_id) : found->second;
}

std::string TokenTexts::Of(std::span<const uint32_t> token_ids) const {
  std::string text;
  for (const uint32_t id : token_ids) absl::StrAppend(&text, Of(id));
  return text;
}

absl::StatusOr<TokenTexts> FetchTokenTexts(GenerationClient& client, const std::string& model,
                                           const Generation& generation) {
  std::set<uint32_t> ids;
  const auto add = [&](const foretoken::v1::PositionLogprobs& position) {
    ids.insert(position.token().token_id());
    for (const foretoken::v1::TokenLogprob& top : position.top()) ids.insert(top.token_id());
  };
  if (generation.prompt.has_value()) std::ranges::for_each(generation.prompt->logprobs(), add);
  for (const Sample& sample : generation.samples) {
    std::ranges::for_each(sample.logprobs, add);
    for (const foretoken::v1::StepReport& step : sample.steps) {
      ids.insert(step.tree().token_ids().begin(), step.tree().token_ids().end());
      ids.insert(step.token_ids().begin(), step.token_ids().end());
    }
  }
  foretoken::v1::DetokenizeRequest request;
  request.set_model(model);
  request.mutable_token_ids()->Add(ids.begin(), ids.end());
  FT_ASSIGN_OR_RETURN(const foretoken::v1::DetokenizeResponse response, client.Detokenize(request));
  std::map<uint32_t, std::string> bytes;
  for (int i = 0; i < std::min(request.token_ids_size(), response.token_bytes_size()); ++i) {
    bytes[request.token_ids(i)] = response.token_bytes(i);
  }
  return TokenTexts(std::move(bytes));
}

}  // namespace foretoken::client
