// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/active_request.h"

#include <algorithm>
#include <utility>

namespace foretoken::verifier {
namespace {

uint32_t ProposerBits(std::span<const std::string> names, const GenerationRequest& request) {
  const std::vector<std::string>& allowed = request.speculation.proposers;
  uint32_t bits = request.speculation.prediction.empty() ? 0 : 1u << names.size();
  if (request.grammar != nullptr) bits |= 1u << (names.size() + 1);
  for (size_t i = 0; i < names.size(); ++i) {
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), names[i]) != allowed.end()) bits |= 1u << i;
  }
  return bits;
}

std::vector<int32_t> EndingIds(const StopConditions& stop, std::span<const int32_t> end_token_ids) {
  std::vector<int32_t> ids = stop.stop_token_ids;
  if (!stop.ignore_eos) ids.insert(ids.end(), end_token_ids.begin(), end_token_ids.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

std::shared_ptr<ActiveRequest> PrepareRequest(GenerationRequest request, const PrepareArgs& args) {
  auto active = std::make_shared<ActiveRequest>();
  std::sort(request.stop.stop_token_ids.begin(), request.stop.stop_token_ids.end());
  active->ending_ids = EndingIds(request.stop, args.end_token_ids);
  active->mask_bits = MakeDrawMaskBits(request, active->ending_ids, *args.drawable);
  const kernels::SamplingParams& sampling = request.sampling;
  active->counts_tokens =
      sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  if (active->counts_tokens) {
    for (const int32_t token_id : request.prompt) active->prompt_counts.AddPrompt(token_id);
  }
  const SpeculationRequest& speculation = request.speculation;
  active->allowed_proposers = ProposerBits(args.proposers, request);
  if (speculation.mode != SpeculationMode::kOff && active->allowed_proposers != 0) {
    active->max_tree_nodes = std::min(args.max_tree_nodes, speculation.max_tree_nodes.value_or(args.max_tree_nodes));
  }
  if (active->max_tree_nodes == 0) request.sampling.coin_nonce = 0;  // without guesses a seed repeats its tokens
  active->num_unfinished = request.num_samples;
  active->request = std::make_shared<const GenerationRequest>(std::move(request));
  return active;
}

int64_t NumHeldTokens(const GenerationRequest& request) {
  const size_t num_listed = request.stop.stop_token_ids.size() + request.allowed_token_ids.size() +
                            request.banned_token_ids.size() + request.logit_bias.size();
  return static_cast<int64_t>(request.prompt.size() + request.speculation.prediction.token_ids().size() + num_listed);
}

}  // namespace foretoken::verifier
