// SPDX-License-Identifier: Apache-2.0
// One sequence: a sample of a request, with everything the engine knows of it. Plain data, owned by the scheduler; only
// the stages of a step touch it, and only commit changes its tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/model/block_pool.h"
#include "common/speculation/token_tree.h"
#include "kernels/ops.h"
#include "verifier_service/draw_masks.h"
#include "verifier_service/prediction.h"
#include "verifier_service/proposer_client.h"
#include "verifier_service/queue_place.h"
#include "verifier_service/request.h"
#include "verifier_service/text_stream.h"

namespace foretoken::verifier {

// What the samples of one request share.
struct ActiveRequest {
  GenerationRequest request;
  std::optional<QueuePlace> place;  // until the first sample runs
  std::vector<int32_t> ending_ids;  // tokens that end a sample: the model's (unless ignored) and the request's own
  DrawMasks masks;
  uint32_t allowed_proposers = 0;  // bit per ProposerClient::Names() entry, and one for its prediction
  int32_t max_tree_nodes = 0;      // 0: no speculation
  int32_t num_unfinished = 0;      // samples
};

// Which tokens stand in a context and how often each was generated, for the penalties.
class TokenCounts {
 public:
  void AddPrompt(int32_t token_id) { CountOf(token_id); }
  void AddGenerated(int32_t token_id) { ++CountOf(token_id).num_generated; }
  std::span<const kernels::TokenCount> counts() const { return counts_; }

 private:
  kernels::TokenCount& CountOf(int32_t token_id) {
    const auto [place, is_new] = places_.try_emplace(token_id, counts_.size());
    if (is_new) counts_.push_back({.token_id = token_id});
    return counts_[place->second];
  }

  std::vector<kernels::TokenCount> counts_;
  absl::flat_hash_map<int32_t, size_t> places_;
};

struct Sequence {
  Sequence(SequenceId id, std::shared_ptr<ActiveRequest> active, int32_t sample_index, TextStream text)
      : id(id), active(std::move(active)), sample_index(sample_index), text(std::move(text)) {}

  const GenerationRequest& request() const { return active->request; }
  int32_t size() const { return static_cast<int32_t>(token_ids.size()); }
  int32_t num_generated() const { return size() - static_cast<int32_t>(request().prompt.size()); }
  // Only the root's K/V is missing: the next row draws a token, and a tree may hang below it.
  bool decodes() const { return num_computed + 1 == size(); }

  SequenceId id;
  std::shared_ptr<ActiveRequest> active;  // shared by the samples of a request; the last one to finish ends it
  int32_t sample_index;
  kernels::SamplingParams sampling;
  std::vector<int32_t> token_ids;  // prompt and generated: the context
  bool counts_tokens = false;      // a penalty is on
  TokenCounts counts;
  TextStream text;

  // K/V
  int32_t num_computed = 0;     // positions below it are in the cache
  std::vector<int32_t> blocks;  // the block table
  model::PrefixId prefix = model::kEmptyPrefix;
  int32_t num_registered_blocks = 0;  // full blocks that the prefix cache knows

  // Speculation
  bool is_open = false;  // the proposers know of it
  // How many nodes the planner takes lately: follows at once when they become more, slowly when they become fewer.
  float usual_nodes = 0;
  std::vector<std::optional<speculation::TokenTree>>
      guesses;                                           // the newest tree of each proposer, the prediction's last
  std::vector<std::optional<uint64_t>> guess_positions;  // where each of these stood when it arrived
  speculation::TokenTree merged_guess;                   // of this step, where it is not simply one of them
  std::optional<PredictionFollower> follower;            // of the request's prediction

  // What its client is told
  uint32_t num_text_bytes = 0;  // published
  bool prompt_reported = false;
  std::vector<kernels::RowLogprobs> prompt_logprobs;
  SampleCompletion usage;
  SpeculationCounts speculation_counts;
  std::vector<ProposerCount> proposer_counts;  // as guesses
  SampleOutput output;                         // of this step
  bool is_finished = false;
};

}  // namespace foretoken::verifier
