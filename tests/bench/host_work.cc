// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/host_work.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/offline/oracle_proposer.h"
#include "kernels/check.h"
#include "tests/testing/cases/random_values.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::bench {
namespace {

using verifier::SampleOutput;

constexpr int kNumSequences = 16;
constexpr int32_t kPromptTokens = 64;
constexpr int32_t kMaxTokens = 600;
constexpr uint64_t kTicketsPerRound = 1000;
constexpr double kMicrosecondsPerMs = 1e3;

std::vector<int32_t> RandomPrompt(uint32_t seed, const tokenizer::Tokenizer& tokenizer) {
  testing::RandomValues random(seed);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < kPromptTokens; ++i) {
    prompt.push_back(random.Below(static_cast<uint32_t>(tokenizer.vocabulary().num_ids())));
  }
  return prompt;
}

void SubmitAll(uint64_t round, verifier::SpeculationMode mode, const tokenizer::Tokenizer& tokenizer,
               verifier::Engine& engine) {
  for (uint32_t i = 0; i < kNumSequences; ++i) {
    const uint64_t ticket = kTicketsPerRound * round + i;
    verifier::GenerationRequest request{
        .ticket = ticket, .request_id = absl::StrCat(ticket), .prompt = RandomPrompt(i, tokenizer)};
    request.sampling.seed = i;
    request.stop = {.max_tokens = std::min(kMaxTokens, engine.max_context_tokens() - kPromptTokens),
                    .ignore_eos = true};
    request.speculation.mode = mode;
    FT_CHECK(engine.Submit(engine.Reserve().value(), std::move(request)).ok());
  }
}

}  // namespace

HostWork MeasureHostWork(model::Transformer& transformer, model::KvCache& kv, const tokenizer::Tokenizer& tokenizer) {
  client::OracleProposer proposer(/*num_nodes=*/16);
  std::map<uint64_t, std::vector<int32_t>> said;
  // The wall clock, because a read of a thread's own clock is a system call, and a step reads the clock eight times.
  const verifier::EngineConfig config = {
      .max_step_rows = std::min(transformer.options().max_rows, transformer.options().max_logit_rows)};
  verifier::Engine engine(config, {.transformer = &transformer,
                                   .kv = &kv,
                                   .tokenizer = &tokenizer,
                                   .proposers = &proposer,
                                   .end_token_ids = {},
                                   .publish = [&said](const std::vector<SampleOutput>& outputs) {
                                     for (const SampleOutput& output : outputs) {
                                       std::vector<int32_t>& tokens = said[output.ticket];
                                       tokens.insert(tokens.end(), output.token_ids.begin(), output.token_ids.end());
                                     }
                                   }});
  // A first run without speculation generates the continuations for the proposer.
  SubmitAll(0, verifier::SpeculationMode::kOff, tokenizer, engine);
  while (engine.Step()) continue;
  for (auto& [i, tokens] : said) {
    proposer.Teach(RandomPrompt(static_cast<uint32_t>(i), tokenizer), std::exchange(tokens, {}));
  }
  SubmitAll(1, verifier::SpeculationMode::kAuto, tokenizer, engine);

  HostWork work;
  verifier::EngineStats first, last;
  for (bool has_more = true; has_more;) {
    const verifier::EngineStats before = engine.GetStats();
    has_more = engine.Step();
    last = engine.GetStats();
    const bool all_decode = before.num_running == kNumSequences && last.num_running == kNumSequences &&
                            before.num_prompt_tokens == last.num_prompt_tokens;
    if (!all_decode && !work.step_us.empty()) break;
    if (!all_decode) continue;
    if (work.step_us.empty()) first = before;
    work.step_us.push_back(kMicrosecondsPerMs * (last.times.host_ms - before.times.host_ms));
  }
  FT_CHECK(!work.step_us.empty());
  const auto num_steps = static_cast<double>(last.num_steps - first.num_steps);
  work.num_rows = static_cast<double>(last.num_rows - first.num_rows) / num_steps;
  work.num_tokens =
      static_cast<double>(last.num_generated_tokens - first.num_generated_tokens) / num_steps / kNumSequences;
  return work;
}

}  // namespace foretoken::bench
