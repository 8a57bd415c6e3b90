// SPDX-License-Identifier: Apache-2.0
// How well a model predicts a text: what a numeric mode or a quantised checkpoint costs, in the field's usual measure.
//
//   FT_ASSIGN_OR_RETURN(const std::vector<TokenScore> scores, ScoreText(model, text, /*window=*/512));
//   Summarize(scores).perplexity
//
// The text is cut into windows of equal length that begin with the model's beginning-of-text token, if it has one. The
// tokens of a window's second half are scored, so that each has at least half a window before it. llama.cpp's figures
// are taken in the same way, with windows of 512 tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/runnable_model.h"

namespace foretoken::client {

struct TokenScore {
  double logprob = 0;        // of the text's token, natural
  int32_t likeliest_id = 0;  // the token that the model holds for the likeliest
  int32_t token_id = 0;      // the text's token
};

// INVALID_ARGUMENT for a text shorter than a window, or a window longer than the model's context. INTERNAL, with the
// window and the token, both from 1, if the model's log-probabilities are not finite.
absl::StatusOr<std::vector<TokenScore>> ScoreText(model::RunnableModel& model, absl::string_view text, int32_t window);

struct TextSummary {
  double perplexity = 0;      // exp(-mean logprob)
  double standard_error = 0;  // of the perplexity
};
TextSummary Summarize(std::span<const TokenScore> scores);

// Two models on the same tokens.
struct TextComparison {
  double ratio = 1;           // after's perplexity to before's
  double standard_error = 0;  // of the ratio; it is small, because both models find the same tokens hard
  double same_likeliest = 1;  // share of tokens for which both hold the same token for the likeliest
};
TextComparison Compare(std::span<const TokenScore> before, std::span<const TokenScore> after);

}  // namespace foretoken::client
