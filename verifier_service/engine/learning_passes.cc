// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/learning_passes.h"

#include <numeric>
#include <vector>

#include "absl/time/time.h"
#include "common/model/forward_batch.h"

namespace foretoken::verifier {
namespace {

constexpr int32_t kMaxLearnedRows = 64;
constexpr int32_t kFewRows = 16;  // the rows of a step with a small tree
constexpr int kLearningRounds = 4;
constexpr absl::Duration kMaxLearning = absl::Seconds(3);

// Returns the time of a pass of `num_rows` rows. The first blocks serve as one context. No request ever reads its K/V.
// The tokens are unlike, so that rows of a layer with experts choose unlike experts, as rows of requests do.
double EmptyPassMs(const LearningArgs& args, int32_t num_rows) {
  std::vector<int32_t> blocks((num_rows + kernels::kKvBlockSize - 1) / kernels::kKvBlockSize);
  std::iota(blocks.begin(), blocks.end(), 0);
  constexpr int64_t kStride = 7919;  // a prime, so that few vocabularies repeat a token
  std::vector<int32_t> token_ids;
  for (int32_t row = 0; row < num_rows; ++row) {
    token_ids.push_back(static_cast<int32_t>(row * kStride % args.transformer->config().vocab_size));
  }
  model::ForwardBatch batch;
  model::AppendSegment({.block_table = blocks, .chain = token_ids}, &batch);
  for (int32_t row = 0; row < num_rows; ++row) batch.logit_rows.push_back(row);
  const absl::Time began = args.now();
  args.transformer->Forward(batch, *args.kv);
  args.transformer->Synchronize();
  return absl::ToDoubleMilliseconds(args.now() - began);
}

}  // namespace

LearningPasses LearnStepCost(const LearningArgs& args, StepCost& step_cost) {
  const absl::Time began = args.now();
  // The first pass of a size loads memory, and a GPU may record the second pass. Both are slower than later passes, so
  // they do not teach the curve.
  const int num_unlike_others = args.transformer->backend().recorder() != nullptr ? 2 : 1;
  LearningPasses passes;
  const auto learn = [&](int32_t num_rows, int round) {
    if (num_rows > args.max_rows || args.now() - began >= kMaxLearning) return;
    const double pass_ms = EmptyPassMs(args, num_rows);
    ++passes.num_passes;
    if (round >= num_unlike_others) step_cost.Observe({.num_rows = num_rows}, static_cast<float>(pass_ms));
  };
  // Passes of 1 row and of a small tree come first, because the planner needs their costs most. The other passes run
  // until a request comes.
  for (int round = 0; round <= num_unlike_others; ++round) {
    for (const int32_t num_rows : {kFewRows, 1}) learn(num_rows, round);
  }
  args.on_ready();
  for (int round = 0; round < kLearningRounds; ++round) {
    for (int32_t num_rows = 1; num_rows <= kMaxLearnedRows && !args.must_end(); num_rows *= 2) learn(num_rows, round);
  }
  passes.seconds = absl::ToDoubleSeconds(args.now() - began);
  return passes;
}

}  // namespace foretoken::verifier
