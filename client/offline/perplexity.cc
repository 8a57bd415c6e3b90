// SPDX-License-Identifier: Apache-2.0
#include "client/offline/perplexity.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/offline/offline_engine.h"
#include "client/offline/oracle_proposer.h"
#include "common/base/status_macros.h"

namespace foretoken::client {
namespace {

constexpr int32_t kMinWindow = 16;

struct MeanAndError {
  double mean = 0;
  double standard_error = 0;
};

template <typename Value>
MeanAndError MeanOf(size_t count, const Value& value) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += value(i);
    squares += value(i) * value(i);
  }
  const auto n = static_cast<double>(count);
  const double variance = std::max(0.0, squares / n - (sum / n) * (sum / n));
  return {.mean = sum / n, .standard_error = std::sqrt(variance / n)};
}

verifier::GenerationRequest ScoringRequest(std::vector<int32_t> window) {
  verifier::GenerationRequest request{.prompt = std::move(window)};
  request.sampling.temperature = 0;
  request.stop = {.max_tokens = 1, .ignore_eos = true};
  request.output = {.num_prompt_logprobs = 1, .echo = true};
  request.speculation.mode = verifier::SpeculationMode::kOff;
  return request;
}

// The text's tokens without any around them, and the tokens that begin a text.
struct Tokens {
  std::vector<int32_t> text;
  std::vector<int32_t> begin;
};

absl::StatusOr<Tokens> Encode(const tokenizer::Tokenizer& tokenizer, absl::string_view text) {
  Tokens tokens;
  FT_ASSIGN_OR_RETURN(tokens.text, tokenizer.Encode(text, {.add_special_tokens = false}));
  FT_ASSIGN_OR_RETURN(tokens.begin, tokenizer.Encode("a"));
  FT_ASSIGN_OR_RETURN(const std::vector<int32_t> plain, tokenizer.Encode("a", {.add_special_tokens = false}));
  size_t num_begin = 0;
  while (num_begin < tokens.begin.size() && !plain.empty() && tokens.begin[num_begin] != plain[0]) ++num_begin;
  tokens.begin.resize(num_begin);
  return tokens;
}

}  // namespace

absl::StatusOr<std::vector<TokenScore>> ScoreText(model::RunnableModel& model, absl::string_view text, int32_t window) {
  const int32_t longest =  // one token is drawn after the window
      std::min(model.transformer->options().max_positions, model.kv.num_blocks * kernels::kKvBlockSize) - 1;
  if (window < kMinWindow || window > longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("--window: expected ", kMinWindow, " to ", longest, " tokens, got ", window));
  }
  FT_ASSIGN_OR_RETURN(const Tokens tokens, Encode(model.tokenizer, text));
  if (tokens.begin.size() >= static_cast<size_t>(window)) {
    return absl::InvalidArgumentError(absl::StrCat("--window: expected more than the ", tokens.begin.size(),
                                                   " tokens that begin every text, got ", window));
  }
  const size_t num_own = window - tokens.begin.size();
  if (tokens.text.size() < num_own) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the text has ", tokens.text.size(), " tokens: expected at least one window of ", num_own, " (--window)"));
  }
  std::vector<TokenScore> scores;
  OracleProposer silent(/*num_nodes=*/0);
  // One window at a time: a window's log-probabilities of all its tokens take their memory until they are read.
  for (size_t at = 0; at + num_own <= tokens.text.size(); at += num_own) {
    std::vector<int32_t> ids = tokens.begin;
    ids.insert(ids.end(), tokens.text.begin() + at, tokens.text.begin() + at + num_own);
    FT_ASSIGN_OR_RETURN(const std::vector<Said> said, RunToEnd(model, silent, {ScoringRequest(std::move(ids))}));
    const std::vector<kernels::RowLogprobs>& rows = said[0].prompt_logprobs;
    for (size_t i = window / 2; i < rows.size(); ++i) {
      if (rows[i].top.empty() || !std::isfinite(rows[i].token.logprob)) {
        return absl::InternalError(absl::StrCat("window ", at / num_own + 1, ", token ", i + 2,
                                                ": the model's log-probabilities are not finite"));
      }
      scores.push_back({.logprob = rows[i].token.logprob,
                        .likeliest_id = rows[i].top[0].token_id,
                        .token_id = rows[i].token.token_id});
    }
  }
  return scores;
}

TextSummary Summarize(std::span<const TokenScore> scores) {
  const MeanAndError loss = MeanOf(scores.size(), [&](size_t i) { return -scores[i].logprob; });
  const double perplexity = std::exp(loss.mean);
  return {.perplexity = perplexity, .standard_error = perplexity * loss.standard_error};
}

TextComparison Compare(std::span<const TokenScore> before, std::span<const TokenScore> after) {
  const size_t count = std::min(before.size(), after.size());
  const MeanAndError loss = MeanOf(count, [&](size_t i) { return before[i].logprob - after[i].logprob; });
  const MeanAndError same =
      MeanOf(count, [&](size_t i) { return before[i].likeliest_id == after[i].likeliest_id ? 1.0 : 0.0; });
  const double ratio = std::exp(loss.mean);
  return {.ratio = ratio, .standard_error = ratio * loss.standard_error, .same_likeliest = same.mean};
}

}  // namespace foretoken::client
