// SPDX-License-Identifier: Apache-2.0
// The one place that changes a sequence: what the target said becomes its tokens, its text and its client's news, and
// the K/V of the accepted path becomes its context.
#pragma once

#include <span>
#include <vector>

#include "kernels/ops.h"
#include "verifier_service/engine/step_plan.h"

namespace foretoken::verifier {

// Appends the path's tokens until one ends the sample, fills the sequence's output, and says which K/V must move for
// num_computed to be true. Returns how many tokens were committed. Takes the path's log-probabilities away.
int32_t CommitPath(Sequence& sequence, const PlannedTree& tree, kernels::AcceptedPath& path,
                   std::vector<kernels::KvMove>* moves);

// A chunk without a draw: its num_chain rows are in the cache now.
void CommitChunk(Sequence& sequence, int32_t num_chain);

// Puts the prompt into the output, once it is known as asked for.
void ReportPrompt(Sequence& sequence);

// Ends a sample: the rest of its text and the completion go into its output.
void FinishSample(Sequence& sequence, FinishReason reason);

// The one output of a sample that ends before it began to run.
SampleOutput AbortUnbegun(const ActiveRequest& active, int32_t sample_index);

}  // namespace foretoken::verifier
