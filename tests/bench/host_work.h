// SPDX-License-Identifier: Apache-2.0
// The engine's own work in a step of 16 sequences: the time from a step's result to the next launch, waiting for
// proposals apart. So long a GPU has nothing to do.
//
// Each sequence is offered trees of 16 nodes, of which half are right, by a proposer in the engine's own thread that
// answers at once.
#pragma once

#include <vector>

#include "common/model/transformer.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken::bench {

struct HostWork {
  std::vector<double> step_us;  // of each step in which all sequences decode
  double num_rows = 0;          // of a step, on average
  double num_tokens = 0;        // that a sequence gets in a step, on average
};

// Of 600 tokens each, or what the model and the K/V have room for. The draw is over the tokenizer's vocabulary.
HostWork MeasureHostWork(model::Transformer& transformer, model::KvCache& kv, const tokenizer::Tokenizer& tokenizer);

}  // namespace foretoken::bench
