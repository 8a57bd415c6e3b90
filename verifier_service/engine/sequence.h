// SPDX-License-Identifier: Apache-2.0
// One sequence: a sample that has begun to run, with all its state in the engine. Plain data, owned by the scheduler.
// Only the stages of a step change it, and only commit changes its tokens.
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
#include "verifier_service/grammar/grammar_follower.h"
#include "verifier_service/proposers/proposer_client.h"
#include "verifier_service/request/active_request.h"
#include "verifier_service/request/prediction.h"
#include "verifier_service/request/request.h"
#include "verifier_service/request/text_stream.h"
#include "verifier_service/request/token_counts.h"

namespace foretoken::verifier {

// Where a guess comes from, for reports.
struct GuessOrigin {
  uint64_t position = 0;  // the tree's position when it arrived
  uint32_t num_predicted_features = 0;
  absl::Time asked, arrived;
  bool is_reported = false;  // a report has had the tree
};

// The generated tokens for which a sample's tenant has paid (waiting_line.h).
struct TokenAdvance {
  int32_t end = 0;       // generated tokens below this number are paid
  bool is_paid = false;  // false: they were free, because no other tenant waited
  // The prompt rows that were in the cache or computed before a preemption. They were used, although they are lost.
  int32_t num_prompt_rows = 0;
};

struct Sequence {
  Sequence(SequenceId id, std::shared_ptr<ActiveRequest> active, int32_t sample_index, TextStream text)
      : id(id), active(std::move(active)), sample_index(sample_index), text(std::move(text)) {}

  const GenerationRequest& request() const { return *active->request; }
  int32_t size() const { return static_cast<int32_t>(token_ids.size()); }
  int32_t num_generated() const { return size() - static_cast<int32_t>(request().prompt.size()); }
  // True if only the root's K/V is missing. Then the next row draws a token, and may have a tree below it.
  bool decodes() const { return num_computed + 1 == size(); }

  SequenceId id;
  std::shared_ptr<ActiveRequest> active;  // shared by the request's samples; the last finished sample frees it
  int32_t sample_index;
  kernels::SamplingParams sampling;
  std::vector<int32_t> token_ids;  // prompt and generated: the context
  TokenCounts counts;              // only with a penalty
  TextStream text;

  // Waiting
  LinePlace line_place;   // its current or last place in the line
  absl::Duration waited;  // in total
  TokenAdvance advance;
  bool was_preempted = false;  // at some time

  // K/V
  int32_t num_computed = 0;     // positions below it are in the cache
  std::vector<int32_t> blocks;  // the block table
  model::PrefixId prefix = model::kEmptyPrefix;
  int32_t num_registered_blocks = 0;  // full blocks in the prefix cache

  // Times, on the engine's clock
  absl::Time began = absl::InfinitePast();             // the last time it began to run
  absl::Time first_token_at = absl::InfiniteFuture();  // when the first token was known

  // Speculation
  bool is_open = false;  // proposers have a session for it
  // The number of nodes that the planner takes lately. It rises at once and falls slowly.
  float usual_nodes = 0;
  std::vector<std::optional<speculation::TokenTree>>
      guesses;  // the newest tree of each proposer, then the prediction's and the grammar's
  std::vector<std::optional<GuessOrigin>> guess_origins;  // as guesses; unset for the last two
  speculation::TokenTree merged_guess;                    // set in a step that merged several trees or cut a tree
  std::optional<PredictionFollower> follower;             // of the request's prediction
  std::optional<GrammarFollower> grammar;                 // of the request's grammar
  absl::Duration paid_grammar_time;                       // of `grammar`, for which its tenant has paid
  bool sits_out = false;                                  // of this step, because its masks are slow (grammar_masks.h)

  // Output to the client
  uint32_t num_text_bytes = 0;  // published
  bool prompt_reported = false;
  std::vector<kernels::RowLogprobs> prompt_logprobs;
  SampleCompletion usage;
  SpeculationCounts speculation_counts;
  std::vector<ProposerCount> proposer_counts;  // one per entry of `guesses`
  SampleOutput output;                         // of this step
  bool is_finished = false;
  bool is_cut_short = false;  // its deadline has ended it: it would have generated more
};

// Makes the sequence of the request's next sample.
std::unique_ptr<Sequence> MakeSequence(SequenceId id, std::shared_ptr<ActiveRequest> active,
                                       const std::vector<std::string>& proposers, const tokenizer::Tokenizer& tokenizer,
                                       const DrawableIds& drawable, const Clock& compute_time = ThreadTime);

// One entry per ProposerClient::Names(), then one for predictions and one for grammars.
std::vector<ProposerCount> NoCounts(const std::vector<std::string>& proposers);

}  // namespace foretoken::verifier
