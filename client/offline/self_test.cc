// SPDX-License-Identifier: Apache-2.0
#include "client/offline/self_test.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/offline/offline_engine.h"
#include "client/offline/oracle_proposer.h"
#include "common/base/status_macros.h"

namespace foretoken::client {
namespace {

using TokenIds = std::vector<int32_t>;

constexpr int32_t kMaxRight = 12;  // of a tree's guesses, less one

verifier::GenerationRequest RequestFor(const TokenIds& prompt, const SelfTestOptions& options, float temperature) {
  verifier::GenerationRequest request{.prompt = prompt};
  request.sampling.temperature = temperature;
  request.sampling.seed = prompt.size();
  request.stop = {.max_tokens = options.num_tokens, .ignore_eos = true};
  return request;
}

// Each prompt alone, without speculation.
absl::StatusOr<std::vector<TokenIds>> PlainTexts(model::RunnableModel& model, const std::vector<TokenIds>& prompts,
                                                 const SelfTestOptions& options, float temperature) {
  OracleProposer silent(/*num_nodes=*/0);
  std::vector<TokenIds> texts;
  for (const TokenIds& prompt : prompts) {
    verifier::GenerationRequest request = RequestFor(prompt, options, temperature);
    request.speculation.mode = verifier::SpeculationMode::kOff;
    FT_ASSIGN_OR_RETURN(std::vector<Said> said, RunToEnd(model, silent, {std::move(request)}));
    texts.push_back(std::move(said[0].token_ids));
  }
  return texts;
}

// The most rows of the sequence in a step.
int32_t MostRows(const Said& said) {
  int64_t most = 0;
  for (const verifier::StepReport& step : said.steps)
    most = std::max(most, std::ranges::count(step.tree.planned, true));
  return static_cast<int32_t>(most) + 1;
}

// Continues some prompts together.
absl::StatusOr<std::vector<Said>> Speculate(model::RunnableModel& model, std::span<const TokenIds> prompts,
                                            std::span<const TokenIds> plain, const SelfTestOptions& options,
                                            float temperature, int32_t width) {
  OracleProposer oracle(width - 1, kMaxRight);
  std::vector<verifier::GenerationRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    oracle.Teach(prompts[i], plain[i]);
    requests.push_back(RequestFor(prompts[i], options, temperature));
    requests.back().speculation = {.mode = verifier::SpeculationMode::kAlways, .reports_steps = true};
  }
  return RunToEnd(model, oracle, std::move(requests));
}

absl::StatusOr<WidthResult> TryWidth(model::RunnableModel& model, const std::vector<TokenIds>& prompts,
                                     const std::vector<TokenIds>& plain, const SelfTestOptions& options,
                                     float temperature, int32_t width) {
  WidthResult result = {.temperature = temperature, .width = width, .rows_reached = width};
  const size_t num_together = std::max(1, kOfflineStepRows / width);
  for (size_t first = 0; first < prompts.size(); first += num_together) {
    const size_t count = std::min(num_together, prompts.size() - first);
    FT_ASSIGN_OR_RETURN(const std::vector<Said> said,
                        Speculate(model, std::span(prompts).subspan(first, count),
                                  std::span(plain).subspan(first, count), options, temperature, width));
    for (size_t i = 0; i < count; ++i) {
      result.num_tokens += static_cast<int64_t>(said[i].token_ids.size());
      result.num_steps += said[i].completion.num_steps;
      result.num_verified += static_cast<int64_t>(said[i].completion.speculation.num_verified_nodes);
      result.rows_reached = std::min(result.rows_reached, MostRows(said[i]));
      if (auto difference = FirstDifference(first + i, plain[first + i], said[i].token_ids)) {
        result.differences.push_back(*difference);
      }
    }
  }
  return result;
}

}  // namespace

std::optional<Difference> FirstDifference(size_t prompt, const std::vector<int32_t>& plain,
                                          const std::vector<int32_t>& speculated) {
  if (plain == speculated) return std::nullopt;
  const auto [a, b] = std::mismatch(plain.begin(), plain.end(), speculated.begin(), speculated.end());
  Difference difference = {.prompt = prompt, .position = static_cast<size_t>(a - plain.begin())};
  if (a != plain.end()) difference.plain_id = *a;
  if (b != speculated.end()) difference.speculated_id = *b;
  return difference;
}

absl::StatusOr<std::vector<WidthResult>> RunSelfTest(model::RunnableModel& model, const SelfTestOptions& options,
                                                     const std::function<void(const WidthResult&)>& report) {
  const int32_t longest = model.transformer->options().max_positions - options.num_tokens;
  std::vector<TokenIds> prompts;
  for (const std::string& text : options.prompts) {
    FT_ASSIGN_OR_RETURN(TokenIds prompt, model.tokenizer.Encode(text));
    if (prompt.empty() || static_cast<int64_t>(prompt.size()) > longest) {
      return absl::InvalidArgumentError(
          absl::StrCat("prompt ", prompts.size() + 1, ": expected 1 to ", longest, " tokens, got ", prompt.size()));
    }
    prompts.push_back(std::move(prompt));
  }
  std::vector<WidthResult> results;
  for (const float temperature : {0.0f, 1.0f}) {
    FT_ASSIGN_OR_RETURN(const std::vector<TokenIds> plain, PlainTexts(model, prompts, options, temperature));
    for (int32_t width = 1; width <= options.max_width; ++width) {
      FT_ASSIGN_OR_RETURN(WidthResult result, TryWidth(model, prompts, plain, options, temperature, width));
      report(result);
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace foretoken::client
