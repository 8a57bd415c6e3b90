// SPDX-License-Identifier: Apache-2.0
// The one place that changes a sequence. The target's tokens become the sequence's tokens, its text and its output, and
// the K/V of the accepted path becomes part of its context.
#pragma once

#include <span>
#include <vector>

#include "kernels/ops.h"
#include "verifier_service/engine/step_plan.h"

namespace foretoken::verifier {

// Appends the path's tokens, up to the token that ends the sample, and fills the sequence's output. Adds the K/V moves
// that make num_computed true to `moves`. Moves the log-probabilities out of `path`. Returns the number of committed
// tokens.
int32_t CommitPath(Sequence& sequence, const PlannedTree& tree, kernels::AcceptedPath& path,
                   std::vector<kernels::KvMove>* moves);

// Commits a chunk that draws no token. The K/V of its num_chain rows is in the cache now.
void CommitChunk(Sequence& sequence, int32_t num_chain);

// Puts the prompt into the output, once, if the request asks for it and its requested log-probabilities are known.
void ReportPrompt(Sequence& sequence);

// Ends a sample. Adds the rest of the text and the completion to the sample's output.
void FinishSample(Sequence& sequence, FinishReason reason);

// Returns the request's mode, or kOff if nothing may be guessed for it.
SpeculationMode ModeOf(const ActiveRequest& active);

// Returns the only output of a sample that was aborted before it began to run.
SampleOutput AbortUnbegun(const GenerationRequest& request, SpeculationMode mode, int32_t sample_index);

}  // namespace foretoken::verifier
