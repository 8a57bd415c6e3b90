// SPDX-License-Identifier: Apache-2.0
// DFlash: a few decoder layers that fill a block of masked tokens in one pass (block_draft.h), with the target's hidden
// states as their context.
//
// With R the root mean square norm, c_i = R(feature of position i) for each position before the newest token t_n:
//   context   K_i = rope_i(R(Wk c_i)), V_i = Wv c_i                 in every layer, from the same c
//   block     x_0 = embed(t_n), x_j = embed(mask) at the positions n + j
//   layer     x += Wo Attention(R(x); the context, then the block);  x += MLP(R(x))
//   z_j = R(x_j),  logits = lm_head z_j
// Row j guesses the token of its own position, t_(n+j), or t_(n+j+1) where sample_from_anchor.
//
// Layers differ in what the rows of a block see. A full layer sees the whole block in both directions. A layer with a
// window w sees its block in order, and of the context the positions from n - w on (speculators), or from n + j - w + 1
// on in row j (the method's own code). Keys of the configuration may change whether a layer is causal. A head's softmax
// may have a sink.
//
// DSpark is the same with a bias by the token before, and with a confidence for each row (markov_head.h).
//
// Source: the method's own code, speculators, and the readers of vLLM and SGLang.
#pragma once

#include "absl/status/statusor.h"
#include "proposer_service/draft/draft_proposer.h"

namespace foretoken::proposer {

// Reads the drafter in options.model_directory, for the target in options.target_directory. Errors: the fault, the
// file or the option, the expected and the given value.
absl::StatusOr<Drafter> LoadDflash(const DraftOptions& options);

}  // namespace foretoken::proposer
