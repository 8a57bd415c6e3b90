// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/sequence.h"

namespace foretoken::verifier {

std::unique_ptr<Sequence> MakeSequence(SequenceId id, std::shared_ptr<ActiveRequest> active,
                                       const std::vector<std::string>& proposers, const tokenizer::Tokenizer& tokenizer,
                                       const DrawableIds& drawable, const Clock& compute_time) {
  const GenerationRequest& request = *active->request;
  // An echo has the character at the prompt's end already, whole or not.
  const std::span<const int32_t> prompt = request.output.echo ? std::span<const int32_t>() : request.prompt;
  TextStream text(tokenizer, {.prompt = prompt,
                              .stop_strings = request.stop.stop_strings,
                              .include_stop_string = request.stop.include_stop_string,
                              .skip_special_tokens = request.output.skip_special_tokens});
  const int32_t sample_index = active->num_begun;
  auto sequence = std::make_unique<Sequence>(id, std::move(active), sample_index, std::move(text));
  sequence->sampling = request.sampling;
  sequence->sampling.sample_index += static_cast<uint32_t>(sample_index);
  sequence->prompt_reported = sample_index > 0;  // only sample 0 reports the prompt, which is the same for all
  sequence->token_ids = request.prompt;
  sequence->counts = sequence->active->prompt_counts;
  sequence->usual_nodes = static_cast<float>(sequence->active->max_tree_nodes);
  sequence->proposer_counts = NoCounts(proposers);
  sequence->guesses.resize(sequence->proposer_counts.size());
  sequence->guess_origins.resize(sequence->guesses.size());
  if (sequence->active->max_tree_nodes > 0 && !request.speculation.prediction.empty()) {
    sequence->follower.emplace(request.speculation.prediction);
  }
  if (request.grammar != nullptr) {
    sequence->grammar.emplace(request.grammar, tokenizer, drawable.num_tokens(), compute_time);
  }
  return sequence;
}

std::vector<ProposerCount> NoCounts(const std::vector<std::string>& proposers) {
  std::vector<ProposerCount> counts;
  for (const std::string& name : proposers) counts.push_back({.proposer = name});
  counts.push_back({.proposer = std::string(kPredictionName)});
  counts.push_back({.proposer = std::string(kGrammarName)});
  return counts;
}

}  // namespace foretoken::verifier
