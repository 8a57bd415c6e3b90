// SPDX-License-Identifier: Apache-2.0
// The masks of a step's rows whose sequences have a grammar. Every such row has a mask of its own: what may follow the
// output and the nodes down to the row. The host makes them while an asynchronous device computes the forward pass.
//
// The mask also leaves out the tokens that the request bans, and before min_tokens those that end the output. Where
// only tokens that end it may follow, they may come in spite of min_tokens.
// Shapes: a mask has ceil(V / 32) words.
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "verifier_service/engine/scheduler.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/engine/step_plan.h"
#include "verifier_service/engine/tree_batch.h"

namespace foretoken::verifier {

class GrammarMasks {
 public:
  // Makes the masks, copies them to the device, and sets the batch's pointers to them. They are valid until the next
  // call. Returns the number of masks.
  int64_t Fill(std::span<const PlannedSequence> plan, kernels::Backend& backend, TreeBatch& batch);

 private:
  std::vector<uint32_t> words_;  // [rows, words of a mask]
  kernels::Buffer device_;       // the same words
  size_t num_device_bytes_ = 0;
};

// What proposers are told of the sequence's next token; empty: any may come.
std::span<const uint32_t> AllowedTokens(Sequence& sequence);

// What a step made, and in which time.
struct StepPace {
  int32_t num_tokens = 0;  // emitted, or computed of prompts
  double ms = 0;           // from the end of the step before
  double hidden_ms = 0;    // time of the masks while the device computed
};

// The masks of one sequence delay the tokens of all. So each sequence's tenant pays for the tokens that such a step
// would have made in the time that the sequence's grammar took. Hidden time delays nobody and costs nothing.
void ChargeMasks(const StepPace& pace, Scheduler& scheduler);

// Slow masks take turns. While a sample runs whose masks are quick, or that needs none, the slow masks of the others
// take at most as much time as the rest of the steps: their samples sit out steps, in turns. The first masks of samples
// that begin take at most as much again. So a step waits for at most kMaxTurnMs of slow masks, and the rest of one
// sample's, and for as much of first masks. A sample's tokens do not depend on the steps that it sits out.
class MaskTurns {
 public:
  static constexpr double kMaxTurnMs = 20;
  static constexpr double kQuickMs = 0.25;  // a sample's mean for a mask

  // Whether a further sample with a grammar may begin beside others. Begin makes its first mask.
  bool MayBegin() const { return begins_left_ms_ > 0; }
  void Begin(Sequence& sequence);
  // Decides which running samples sit out the step, and returns their number. Their tenants pay a token each, because
  // the samples keep their places in the batch.
  int32_t Give(Scheduler& scheduler);
  // Call before ChargeMasks.
  void Observe(std::span<const std::unique_ptr<Sequence>> running, const StepPace& pace);

 private:
  double left_ms_ = kMaxTurnMs;         // slow masks may take it now
  double begins_left_ms_ = kMaxTurnMs;  // first masks may take it now
  SequenceId last_ = 0;                 // had the last turn
};

// Whether the sequence's form lets it go on.
// INVALID_ARGUMENT with FORMAT_TOO_COSTLY: a mask of the output and the token behind it take more than `max_mean`, or
// the matcher has given up. The end of a request must not depend on guesses. So the mask behind a wrong guess does
// not count, and the mask behind a right guess counts: without the guess it would have been made, too.
// INVALID_ARGUMENT with NO_TOKEN_TO_DRAW: a row found no token, because the form lets none follow the output.
absl::Status CheckMasks(Sequence& sequence, absl::Duration max_mean, bool found_tokens);

}  // namespace foretoken::verifier
