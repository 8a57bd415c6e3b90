// SPDX-License-Identifier: Apache-2.0
// One sequence: a sample of a request that has begun to run, with everything the engine knows of it. Plain data, owned
// by the scheduler; only the stages of a step touch it, and only commit changes its tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/model/block_pool.h"
#include "common/speculation/token_tree.h"
#include "kernels/ops.h"
#include "verifier_service/engine/active_request.h"
#include "verifier_service/engine/prediction.h"
#include "verifier_service/engine/request.h"
#include "verifier_service/engine/text_stream.h"
#include "verifier_service/engine/token_counts.h"
#include "verifier_service/proposers/proposer_client.h"

namespace foretoken::verifier {

struct Sequence {
  Sequence(SequenceId id, std::shared_ptr<ActiveRequest> active, int32_t sample_index, TextStream text)
      : id(id), active(std::move(active)), sample_index(sample_index), text(std::move(text)) {}

  const GenerationRequest& request() const { return *active->request; }
  int32_t size() const { return static_cast<int32_t>(token_ids.size()); }
  int32_t num_generated() const { return size() - static_cast<int32_t>(request().prompt.size()); }
  // Only the root's K/V is missing: the next row draws a token, and a tree may hang below it.
  bool decodes() const { return num_computed + 1 == size(); }

  SequenceId id;
  std::shared_ptr<ActiveRequest> active;  // shared by the samples of a request; the last one to finish ends it
  int32_t sample_index;
  kernels::SamplingParams sampling;
  std::vector<int32_t> token_ids;  // prompt and generated: the context
  TokenCounts counts;              // where a penalty is on
  TextStream text;

  // Its turns to run
  LinePlace line_place;   // where it waits, or waited last
  absl::Duration waited;  // in all

  // K/V
  int32_t num_computed = 0;     // positions below it are in the cache
  std::vector<int32_t> blocks;  // the block table
  model::PrefixId prefix = model::kEmptyPrefix;
  int32_t num_registered_blocks = 0;  // full blocks that the prefix cache knows

  // When, on the engine's clock
  absl::Time began;                                    // to run, for the last time
  absl::Time first_token_at = absl::InfiniteFuture();  // was known

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

// The sample of the request that begins next.
std::unique_ptr<Sequence> MakeSequence(SequenceId id, std::shared_ptr<ActiveRequest> active,
                                       const std::vector<std::string>& proposers,
                                       const tokenizer::Tokenizer& tokenizer);

// As ProposerClient::Names(), then the clients' predictions.
std::vector<ProposerCount> NoCounts(const std::vector<std::string>& proposers);

}  // namespace foretoken::verifier
