// SPDX-License-Identifier: Apache-2.0
// Requests that vary in every option. Prompts are pieces of the demo prompts, from one token to several attention
// tiles. Every feature is on in some requests, and many features together in others.
#pragma once

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/paths.h"
#include "verifier_service/grammar/grammar.h"
#include "verifier_service/request/request.h"

namespace foretoken::testing {

// The demo prompts, end to end: 1,100 tokens of Python.
inline std::vector<int32_t> DemoText(const tokenizer::Tokenizer& tokenizer) {
  std::ifstream lines(SourcePath("deploy/demo/prompts.jsonl"));
  std::string text, line;
  while (std::getline(lines, line)) text += nlohmann::json::parse(line)["prompt"].get<std::string>() + "\n";
  return tokenizer.Encode(text).value();
}

// Returns a piece of the text, mostly of up to 48 tokens, sometimes of up to 300.
inline std::vector<int32_t> Piece(const std::vector<int32_t>& text, RandomValues& random) {
  const int32_t length = 1 + random.Below(random.Coin(0.1) ? 300 : 48);
  const auto begin = text.begin() + random.Below(static_cast<int32_t>(text.size()) - length);
  return {begin, begin + length};
}

// Ascending, distinct.
inline std::vector<int32_t> IdsOf(const std::vector<int32_t>& text) {
  const std::set<int32_t> ids(text.begin(), text.end());
  return {ids.begin(), ids.end()};
}

inline kernels::SamplingParams VariedSampling(float temperature, RandomValues& random) {
  kernels::SamplingParams sampling = {.temperature = temperature};
  sampling.seed = static_cast<uint64_t>(random.Below(1 << 30)) << 33 | static_cast<uint64_t>(random.Below(1 << 30));
  if (random.Coin(0.25)) sampling.top_k = 1 + random.Below(50);
  if (random.Coin(0.25)) sampling.top_p = static_cast<float>(0.5 + 0.5 * random.Uniform());
  if (random.Coin(0.25)) sampling.min_p = static_cast<float>(0.1 * random.Uniform());
  if (random.Coin(0.25)) sampling.repetition_penalty = static_cast<float>(0.9 + 0.6 * random.Uniform());
  if (random.Coin(0.25)) sampling.presence_penalty = static_cast<float>(2 * random.Uniform() - 0.5);
  if (random.Coin(0.25)) sampling.frequency_penalty = static_cast<float>(2 * random.Uniform() - 0.5);
  return sampling;
}

// Returns stop strings and ids that this model often generates.
inline verifier::StopConditions VariedStop(const tokenizer::Tokenizer& tokenizer, RandomValues& random) {
  verifier::StopConditions stop = {.max_tokens = 8 + random.Below(25)};
  if (random.Coin(0.25)) stop.min_tokens = 1 + random.Below(8);
  if (random.Coin(0.25)) stop.stop_strings = {"):", "self.", "\n\n", " = "};
  if (random.Coin(0.25)) {
    for (const char* text : {":", ",", "\n", " return"}) {
      const std::vector<int32_t> token_ids = tokenizer.Encode(text).value();
      stop.stop_token_ids.push_back(token_ids.back());
    }
  }
  stop.ignore_eos = random.Coin(0.25);
  stop.include_stop_string = random.Coin(0.5);
  return stop;
}

using Forms = std::vector<std::shared_ptr<const verifier::Grammar>>;

inline verifier::GenerationRequest VariedRequest(const std::vector<int32_t>& text,
                                                 const tokenizer::Tokenizer& tokenizer, float temperature,
                                                 const Forms& forms, RandomValues& random) {
  verifier::GenerationRequest request;
  request.prompt = Piece(text, random);
  request.sampling = VariedSampling(temperature, random);
  request.stop = VariedStop(tokenizer, random);
  if (random.Coin(0.25)) {
    for (int32_t i = 0; i < 3; ++i) {
      const int32_t token_id = i * 1000 + random.Below(1000);  // distinct
      request.logit_bias.push_back({.token_id = token_id, .bias = 6 * random.Normal()});
    }
  }
  if (random.Coin(0.2)) request.num_samples = 2 + random.Below(2);
  if (random.Coin(0.5)) request.output.num_logprobs = random.Below(6);
  if (random.Coin(0.1)) request.output.num_prompt_logprobs = random.Below(3);
  request.output.skip_special_tokens = random.Coin(0.5);
  request.priority = random.Below(2);
  if (random.Coin(0.25)) request.tenant = "other";
  if (random.Coin(0.1)) request.output.echo = true;
  if (!forms.empty() && random.Coin(0.2)) {
    request.grammar = forms[random.Below(static_cast<int32_t>(forms.size()))];
    request.stop.ignore_eos = false;  // no request may have both
  } else if (random.Coin(0.2)) {
    request.allowed_token_ids = IdsOf(text);  // a form and lists together may leave no token
  } else if (random.Coin(0.2)) {
    request.banned_token_ids = IdsOf(Piece(text, random));
  }
  return request;
}

// Equal arguments give equal requests. Temperatures alternate. Some requests have one of the forms.
inline std::vector<verifier::GenerationRequest> VariedRequests(const tokenizer::Tokenizer& tokenizer, int num_requests,
                                                               const std::vector<float>& temperatures,
                                                               const Forms& forms = {}) {
  const std::vector<int32_t> text = DemoText(tokenizer);
  RandomValues random(1);
  std::vector<verifier::GenerationRequest> requests;
  for (int i = 0; i < num_requests; ++i) {
    requests.push_back(VariedRequest(text, tokenizer, temperatures[i % temperatures.size()], forms, random));
    requests.back().ticket = static_cast<verifier::Ticket>(i + 1);
    requests.back().request_id = std::to_string(i + 1);
  }
  return requests;
}

}  // namespace foretoken::testing
