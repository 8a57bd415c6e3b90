// SPDX-License-Identifier: Apache-2.0
// A request that the engine has accepted: what its samples share. All that follows from the request alone is computed
// by PrepareRequest, on the thread that submits it; on its own thread the engine only counts and looks up. A request
// that waits has its prompt once, however many samples it asks for.
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
#include "verifier_service/engine/draw_masks.h"
#include "verifier_service/engine/queue_place.h"
#include "verifier_service/engine/request.h"
#include "verifier_service/engine/token_counts.h"

namespace foretoken::verifier {

struct Sequence;

// A place in the WaitingLine.
struct LinePlace {
  absl::Time time;      // since when it waits, moved by its priority
  uint64_t number = 0;  // the earlier of equal times first

  friend std::strong_ordering operator<=>(const LinePlace&, const LinePlace&) = default;
};

struct ActiveRequest {
  // Of the request alone.
  std::shared_ptr<const GenerationRequest> request;  // shared with outputs that give the prompt back
  std::vector<int32_t> ending_ids;                   // ascending: the model's (unless ignored) and the request's own
  DrawMaskBits mask_bits;                            // until `masks` are made
  bool counts_tokens = false;                        // a penalty is on
  TokenCounts prompt_counts;                         // where one is
  uint32_t allowed_proposers = 0;  // bit per ProposerClient::Names() entry, and one for its prediction
  int32_t max_tree_nodes = 0;      // 0: no speculation

  // Of its samples.
  QueuePlace place;
  std::optional<LinePlace> line_place;  // of the samples that have not begun to run
  int32_t num_begun = 0;                // samples, in their order
  int32_t num_unfinished = 0;           // samples, those that have not begun included
  std::vector<Sequence*> sequences;     // of the samples that have begun and are not removed
  DrawMasks masks;                      // once a sample has begun
};

struct PrepareArgs {
  std::span<const int32_t> end_token_ids;  // the model's
  std::span<const std::string> proposers;  // names
  const DrawableIds* drawable = nullptr;
  int32_t max_tree_nodes = 0;  // the server's
};
std::shared_ptr<ActiveRequest> PrepareRequest(GenerationRequest request, const PrepareArgs& args);

// All that a request holds while it waits, in tokens: its prompt, its prediction and its lists of ids.
int64_t NumHeldTokens(const GenerationRequest& request);

}  // namespace foretoken::verifier
