// SPDX-License-Identifier: Apache-2.0
// The engine's own work in a step of 16 sequences: the time from a step's result to the next launch, without the wait
// for proposals. A GPU is idle for that time.
//
// A proposer in the engine's own thread answers at once. It gives each sequence trees of 16 nodes of which half are
// right.
#pragma once

#include <vector>

#include "common/model/transformer.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken::bench {

struct HostWork {
  std::vector<double> step_us;  // of each step in which all sequences decode
  double num_rows = 0;          // rows of a step, on average
  double num_tokens = 0;        // tokens of a sequence in a step, on average
};

// Each sequence emits 600 tokens, or as many as the model and the K/V have room for. The draw is over the tokenizer's
// vocabulary.
HostWork MeasureHostWork(model::Transformer& transformer, model::KvCache& kv, const tokenizer::Tokenizer& tokenizer);

}  // namespace foretoken::bench
