// SPDX-License-Identifier: Apache-2.0
#include "client/logprob_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/quoted.h"

namespace foretoken::client {
namespace {

constexpr size_t kTokenColumns = 24;

template <typename Positions>
void AppendPositions(absl::string_view what, const Positions& positions, const TokenTexts& texts, std::string& lines) {
  if (positions.empty()) return;
  absl::StrAppend(&lines, "log-probabilities of ", what, ", and of the likeliest tokens:\n");
  for (const foretoken::v1::PositionLogprobs& position : positions) {
    const auto shown = [&](const foretoken::v1::TokenLogprob& token) {
      return Quoted(texts.Of(token.token_id()), kTokenColumns);
    };
    absl::StrAppendFormat(&lines, "  %s %8.3f", Padded(shown(position.token()), kTokenColumns),
                          position.token().logprob());
    for (const auto& top : position.top()) absl::StrAppendFormat(&lines, "  %s %.3f", shown(top), top.logprob());
    absl::StrAppend(&lines, "\n");
  }
}

}  // namespace

bool HasLogprobs(const Generation& generation) {
  return (generation.prompt.has_value() && generation.prompt->logprobs_size() > 0) ||
         std::ranges::any_of(generation.samples, [](const Sample& sample) { return !sample.logprobs.empty(); });
}

std::string LogprobText(const Generation& generation, const TokenTexts& texts) {
  std::string lines;
  if (generation.prompt.has_value()) AppendPositions("the prompt", generation.prompt->logprobs(), texts, lines);
  for (size_t i = 0; i < generation.samples.size(); ++i) {
    const std::string what = generation.samples.size() > 1 ? absl::StrCat("sample ", i) : std::string("the output");
    AppendPositions(what, generation.samples[i].logprobs, texts, lines);
  }
  return lines;
}

}  // namespace foretoken::client
