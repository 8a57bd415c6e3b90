// SPDX-License-Identifier: Apache-2.0
// A request that the engine has accepted, with the data that its samples share. PrepareRequest computes everything that
// depends on the request alone, on the submitting thread. The engine's own thread only counts and looks up. A waiting
// request stores its prompt once for any number of samples.
//
// Threads: PrepareRequest from any; then the engine's.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "verifier_service/request/draw_masks.h"
#include "verifier_service/request/queue_place.h"
#include "verifier_service/request/request.h"
#include "verifier_service/request/token_counts.h"

namespace foretoken::verifier {

struct Sequence;

// A place in the WaitingLine.
struct LinePlace {
  absl::Time time;      // the start of its wait, shifted by its priority
  uint64_t number = 0;  // breaks ties: the lower number goes first

  friend std::strong_ordering operator<=>(const LinePlace&, const LinePlace&) = default;
};

struct ActiveRequest {
  // Depends on the request alone
  std::shared_ptr<const GenerationRequest> request;  // shared with outputs that echo the prompt
  std::vector<int32_t> ending_ids;                   // ascending: the model's (unless ignored) and the request's
  DrawMaskBits mask_bits;                            // until `masks` is made; with a grammar, to the end
  bool counts_tokens = false;                        // true if the request has a penalty
  TokenCounts prompt_counts;                         // empty without a penalty
  uint32_t allowed_proposers =
      0;                       // bit per ProposerClient::Names() entry, and one each for its prediction and its grammar
  int32_t max_tree_nodes = 0;  // 0: no speculation

  // State of its samples
  QueuePlace place;
  std::optional<LinePlace> line_place;  // of the samples that have not begun
  int32_t num_begun = 0;                // samples that have begun, in their order
  int32_t num_unfinished = 0;           // samples that have not ended, begun or not
  std::vector<Sequence*> sequences;     // of begun samples, until they are removed
  DrawMasks masks;                      // set when the first sample begins
};

struct PrepareArgs {
  std::span<const int32_t> end_token_ids;  // the model's
  std::span<const std::string> proposers;  // names
  const DrawableIds* drawable = nullptr;
  int32_t max_tree_nodes = 0;  // the server's
};
std::shared_ptr<ActiveRequest> PrepareRequest(GenerationRequest request, const PrepareArgs& args);

// Returns the tokens that a waiting request holds: its prompt, its prediction and its lists of ids.
int64_t NumHeldTokens(const GenerationRequest& request);

}  // namespace foretoken::verifier
